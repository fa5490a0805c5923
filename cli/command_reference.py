"""Writes docs/look-up/cli.md: every command's help, as `gpuctl` prints it.

A test compares the page.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from cli.commands import cost, ps, queue
from cli.main import app
from cli.render import capacity, comparison, health, orphans, tables, top

PAGE = Path(__file__).parent.parent / "docs/look-up/cli.md"
_HEAD = """# The commands

Written by `make docs` from the commands' own help; edit the help, not this page.

- The options of all commands (`--lab`, `--region`, `--json`, …) are taken before and after the
  command: `gpuctl --lab up demo.yaml` and `gpuctl up demo.yaml --lab` are the same. If an option is
  given twice, the last one counts. Behind `--`, and in the command of `exec` and `ssh`, no option
  is gpuctl's: `gpuctl exec demo -- cmd --region x` passes it on.
- Left out below: `-h`, `--help`, which each command has, and which also names the page of this
  documentation; `--json` of each command that prints a result; `-y`, `--yes` of each command that
  asks: "Do not ask."; and `CLUSTER`, which is the cluster's name, where it has to be named.
- With `--json` stdout has one document and nothing else. `gpuctl logs --json` prints one object per
  line of output: `{"time": 1.5, "rank": 0, "stream": "stdout", "text": "…"}`. Progress, questions,
  warnings and errors are on stderr. Without a terminal a question is an error that names the option
  that says yes.
- `--quiet` leaves out progress. Results, warnings and errors are shown.
- `--no-color`, or `NO_COLOR` in the environment, leaves out every colour, also those that a job
  prints; so do `CLICOLOR=0` and `TERM=dumb`. With `FORCE_COLOR` or `CLICOLOR_FORCE` gpuctl's own
  colours are shown in a pipe too.
- Without a terminal, and with `TERM=dumb`, every line is plain: nothing is drawn again. In a
  pipe each row of a table is one line with all columns.
- On a terminal a table is as wide as it is. One that is too wide lacks columns, in the order of
  [the list below](#columns-that-a-narrow-terminal-lacks); then its cells are wrapped. Tables that
  are not in the list, such as that of `doctor`, have all columns.
- `gpuctl --install-completion` teaches your shell the commands, their options, and the names of
  clusters, nodes and runs that this machine knows, and of instance types, regions and zones.
  `gpuctl --show-completion` prints the script.
"""

_TABLES = {
    "`ps`": ps.DROP,
    "`queue`": queue.DROP,
    "`cost`": cost.DROP,
    "`top`": top.DROP,
    "`top --gpus`": top.DROP_OF_GPUS,
    "`top RUN` of a run that is over": top.DROP_OF_PAST,
    "`health`, once the findings have 40 columns": health.DROP,
    "`run` and `results`, in both halves": tables.DROP,
    "`results --compare` and `--baseline`": comparison.DROP,
    "`capacity`, blocks for sale": capacity.DROP,
    "`capacity`, what you have reserved": capacity.DROP_OF_RESERVED,
    "`gc`": orphans.DROP,
}
_REPEATED = (
    "-h, --help +Show this message and exit.*",
    "--json +One JSON document on.*",
    r"-y, --yes +Do not ask\.",
    r"CLUSTER +The cluster's name\.  \[required\]",
)
"""Lines of help, as regular expressions, that the page's head describes once."""
_COLUMNS = """## Columns that a narrow terminal lacks

| Table | Left out, the first of them first |
| --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    runner = CliRunner()
    width = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    names = [[], *paths(typer.main.get_command(app))]
    parts = [_HEAD]
    for path in names:
        text = runner.invoke(app, [*path, "--help"], prog_name="gpuctl", env=width).output
        lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
        if path:
            lines = _without_what_all_have(lines)
        parts.append(f"## {' '.join(['gpuctl', *path])}\n\n```text\n{lines}\n```\n")
    return "\n".join([*parts, _COLUMNS + "".join(map(_dropped, _TABLES))])


def _dropped(table: str) -> str:
    """Return the table's row of the page, with the first line of each column's head."""
    names = (" ".join(name.split("\n")) for name in _TABLES[table])
    return f"| {table} | {', '.join(names)} |\n"


def _without_what_all_have(text: str) -> str:
    """Return a command's help without the lines that many commands have."""
    for line in _REPEATED:
        text = re.sub(rf"\n  {line}(?=\n|$)", "", text)
    text = re.sub(r"\nOptions of all commands, see[^.]*\.\n", "", text)
    text = re.sub(r"\n\nDocumentation: .*", "", text)
    text = re.sub(r"\n\n(?:Options|Arguments):(?=\n\n)", "", text)
    return re.sub(r"^Usage: (.*?) \[OPTIONS\]", r"\1", text)


def paths(command: Any) -> Iterator[list[str]]:
    """Yield the words of every command below this one that is not hidden, at any depth."""
    for name, sub in getattr(command, "commands", {}).items():
        if not sub.hidden:
            yield [name]
            yield from ([name, *rest] for rest in paths(sub))


if __name__ == "__main__":
    PAGE.write_text(page())
