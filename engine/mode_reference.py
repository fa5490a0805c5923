"""The generated halves of docs/modes.md and docs/rdma.md: rules, environment, network presets.

`python -m engine.mode_reference` writes them from the tables that runs use; a test fails where a
page differs. What stands above the marker in a page is written by hand and kept.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from config.file_reference import DOCS
from config.run.launchers import OPEN_MPI_INTERFACES
from config.run.owned_variables import OWNED, Owned
from engine.network.preset_tables import presets_reference
from engine.rules import RULES

MARKER = "<!-- Below: written by `python -m engine.mode_reference`. -->\n"

COUNTS = {
    "ddp": "nodes",
    "ray": "nodes (`RANK` alone)",
    "torchrun": "ranks",
    "deepspeed": "ranks",
}
"""What RANK and WORLD_SIZE number and count in a run, by its type; the others do not set them."""


def modes_reference() -> str:
    """The table of rules, and for each type the variables that a run file cannot set."""
    return "\n".join([*_rules(), *_counts(), *_environment()])


def pages() -> dict[Path, str]:
    """Each page's generated half."""
    return {DOCS / "modes.md": modes_reference(), DOCS / "rdma.md": presets_reference()}


def replace_reference(page: str, reference: str) -> str:
    """The page with everything below its marker replaced."""
    return page.partition(MARKER)[0] + MARKER + "\n" + reference


def main() -> None:
    """The pages under docs/ are up to date."""
    for path, reference in pages().items():
        path.write_text(replace_reference(path.read_text(), reference))


def _rules() -> Iterator[str]:
    yield "## Rules\n"
    yield "Checked before anything runs; what a run file alone breaks is in"
    yield "[diagnostics.md](diagnostics.md).\n"
    yield "| rule | reason | remedy |"
    yield "| --- | --- | --- |"
    yield from (f"| {rule.says} | {rule.reason} | {rule.remedy} |" for rule in RULES)
    yield ""


def _counts() -> Iterator[str]:
    yield "## What `RANK` and `WORLD_SIZE` count\n"
    yield "| type | they count |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | {COUNTS.get(name, 'nothing: not set')} |" for name in OWNED)
    yield ""


def _environment() -> Iterator[str]:
    yield "## Environment of every type\n"
    yield "A run file cannot set these names, nor those of its type below.\n"
    yield from _table(OWNED["task"])
    for own, names in _alike().items():
        yield f"## Environment of {' and '.join(f'`{name}`' for name in names)}\n"
        yield from _table(own)
    yield "## Defaults of Open MPI\n"
    yield "Set by `mpi` and `nccl-tests` with Open MPI, unless `env` or `mpirun_args` choose"
    yield "interfaces themselves.\n"
    yield "| variable | value |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | `{value}` |" for name, value in OPEN_MPI_INTERFACES.items())
    yield ""


def _alike() -> dict[tuple[Owned, ...], list[str]]:
    """What types own beside what all do, and which types those are."""
    found: dict[tuple[Owned, ...], list[str]] = {}
    for name, rows in OWNED.items():
        own = tuple(row for row in rows if row not in OWNED["task"])
        if own:
            found.setdefault(own, []).append(name)
    return found


def _table(rows: Iterable[Owned]) -> Iterator[str]:
    yield "| variable | set by | value | source |"
    yield "| --- | --- | --- | --- |"
    yield from (f"| `{row.name}` | {row.by} | {row.value} | {row.source} |" for row in rows)
    yield ""


if __name__ == "__main__":
    main()
