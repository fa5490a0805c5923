"""A node's answer to a command. This module does not import ssh, so its readers need no ssh."""

from dataclasses import dataclass
from typing import Any

from config.errors import GpuctlError, NodeError


@dataclass(frozen=True)
class Completed:
    """A command that ended; `exit_status` is 128 + N if signal N ended it."""

    exit_status: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The last line on stderr, where commands write the reason of a failure."""
        return (self.stderr.strip().splitlines() or ["no reason given"])[-1]


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
