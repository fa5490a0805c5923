"""Print the nodes' answers to a command; equal answers once."""

import shlex
from collections.abc import Mapping

from cli.output import Output
from config.errors import GpuctlError
from config.folded_names import fold
from operations.node_commands import Completed

UNREACHABLE = 255  # as ssh


def shell_line(command: list[str]) -> str:
    """Return the shell line: one word is one (`exec c -- 'a | b'`), several are quoted."""
    return command[0] if len(command) == 1 else shlex.join(command)


def show(answers: Mapping[str, Completed | GpuctlError], out: Output) -> int:
    """Print the answers by their nodes' names, in rank order; return the largest exit code."""
    names: dict[tuple[str, int], list[str]] = {}
    for name, answer in answers.items():
        names.setdefault(_text(answer, out), []).append(name)
    document = {
        name: vars(answer)
        if isinstance(answer, Completed)
        else {"error": out.with_options(str(answer))}
        for name, answer in answers.items()
    }
    lines = list[str]()
    for (text, code), equal in names.items():
        lines.append(f"--- {fold(equal)}" + (f": exit code {code}" if code else ""))
        if text:
            lines.append(text)
    out.show(document, ())
    out.pass_on("\n".join(lines))
    return max(code for _, code in names)


def _text(answer: Completed | GpuctlError, out: Output) -> tuple[str, int]:
    """Return the text to print for a node's answer, and its exit code."""
    if isinstance(answer, Completed):
        return (answer.stdout + answer.stderr).rstrip("\n"), answer.exit_status
    return out.with_options(str(answer)), UNREACHABLE
