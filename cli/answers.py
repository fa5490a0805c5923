"""What nodes answered to a command, on the terminal: equal answers once."""

from collections.abc import Mapping
from typing import Any

from cli.output import Output
from nodes.names import fold

UNREACHABLE = 255  # as ssh

Said = tuple[str, int]
"""What is shown of a node's answer, and its exit code."""


def shell_line(command: list[str]) -> str:
    """One word is a shell line (`exec c -- 'a | b'`), several are an argument list."""
    if len(command) == 1:
        return command[0]
    import shlex

    return shlex.join(command)


def said(answer: Mapping[str, Any]) -> Said:
    """What a node printed, or why it is out of reach."""
    if "exit_status" in answer:
        return (answer["stdout"] + answer["stderr"]).rstrip("\n"), answer["exit_status"]
    return "; ".join(filter(None, answer.get("unreachable") or answer["error"])), UNREACHABLE


def show(answers: Mapping[str, Said], out: Output) -> int:
    """Print the answers by their nodes' names, in rank order; return the largest exit code."""
    names: dict[Said, list[str]] = {}
    for name, answer in answers.items():
        names.setdefault(answer, []).append(name)
    for (text, code), found in names.items():
        out.say(f"--- {fold(found)}" + (f": exit code {code}" if code else ""))
        if text:
            out.say(text)
    return max(code for _, code in answers.values())
