"""A node's answer to a command. This module does not import ssh, so its readers need no ssh.

A mark is in front of the output, after the greeting of the node's shell. sshd gives a command to
the login shell of the node's user, and bash then reads ~/.bashrc: on many machines that prints a
greeting, or an error. Nothing before the mark is the command's. A shell that ends in its start-up
files prints no mark: then everything is kept, because it has the reason.
"""

from dataclasses import dataclass
from typing import Any

from config.errors import GpuctlError, NodeError

LONGEST = 1000
"""Characters of a line that a node says and gpuctl prints: a job may be root there."""


@dataclass(frozen=True)
class Completed:
    """A command that ended; `exit_status` is 128 + N if signal N ended it."""

    exit_status: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The last line on stderr, where commands write the reason of a failure, for a terminal."""
        return (self.stderr.strip().splitlines() or ["no reason given"])[-1][:LONGEST]


class Unreachable(NodeError):
    """The error that a machine does not answer, or that the connection to it was lost."""


class NotReached(Unreachable):
    """The error that no connection to the machine was made: nothing ran on it."""


def may_have_run(error: NodeError) -> bool:
    """Return whether the command that failed with this error may have begun on its node.

    It has not if the login was refused, or if there was no connection.
    """
    return isinstance(error, Unreachable) and not isinstance(error, NotReached)


class CommandFailed(NodeError):
    """The error that a command exited with another status than 0; `reason` is its last line."""

    def __init__(self, message: str, hint: str, reason: str) -> None:
        super().__init__(message, hint)
        self.reason = reason


def parse_answer(answer: dict[str, Any]) -> Completed | GpuctlError:
    """Return the broker's answer for one node."""
    return error_of(answer) or Completed(**answer)


def error_of(answer: Any) -> NodeError | None:
    """Return the error that an answer of the broker holds, or None."""
    if isinstance(answer, dict) and "unreachable" in answer:
        kind = NotReached if answer.get("not_reached") else Unreachable
        return kind(*answer["unreachable"])
    if isinstance(answer, dict) and "reason" in answer:
        message, hint = answer["error"]
        return CommandFailed(message, hint, answer["reason"])
    if isinstance(answer, dict) and "error" in answer:
        return NodeError(*answer["error"])
    return None


MARK = "gpuctl-command-begins"
"""A line of both streams in front of the command's own."""

MOST_NOISE = 1 << 20
"""Bytes that a shell may print before the mark."""


def mark(command: str) -> str:
    """Return the command for a login shell, with the mark; traps of ~/.bashrc print nothing.

    bash that sshd has called reads ~/.bashrc up to level 1. The last command of a shell takes the
    shell's place and level, so a `bash -c` there would read it too (run_startup_files in shell.c
    and adjust_shell_level in variables.c of bash 5.2, tried 2026-11-26).
    """
    return f"trap - 0; export SHLVL=3; echo {MARK}; echo {MARK} >&2\n{command}"


def after_mark(text: str) -> str:
    """Return what the command printed, of one stream's whole text."""
    before, mark, after = text.partition(f"{MARK}\n")
    return after if mark else before
