"""Print the nodes' answers to a command; equal answers once."""

from collections.abc import Mapping
from typing import Any

from cli.output import Output
from config.folded_names import fold

UNREACHABLE = 255  # as ssh

Answer = tuple[str, int]
"""The text to print for a node's answer, and its exit code."""


def shell_line(command: list[str]) -> str:
    """Return the shell line: one word is one (`exec c -- 'a | b'`), several are quoted."""
    if len(command) == 1:
        return command[0]
    import shlex

    return shlex.join(command)


def node_answer(answer: Mapping[str, Any]) -> Answer:
    """Return what a node printed, or why it cannot be reached."""
    if "exit_status" in answer:
        return (answer["stdout"] + answer["stderr"]).rstrip("\n"), answer["exit_status"]
    return "; ".join(filter(None, answer.get("unreachable") or answer["error"])), UNREACHABLE


def show(answers: Mapping[str, Answer], out: Output) -> int:
    """Print the answers by their nodes' names, in rank order; return the largest exit code."""
    names: dict[Answer, list[str]] = {}
    for name, answer in answers.items():
        names.setdefault(answer, []).append(name)
    for (text, code), found in names.items():
        out.say(f"--- {fold(found)}" + (f": exit code {code}" if code else ""))
        if text:
            out.say(text)
    return max(code for _, code in answers.values())
