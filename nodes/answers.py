"""What a node answers to a command; apart from ssh, so that whoever reads one needs no ssh."""

from dataclasses import dataclass

from config.errors import NodeError


@dataclass(frozen=True)
class Completed:
    """A command that ended; `exit_status` is 128 + N where signal N ended it."""

    exit_status: int
    stdout: str
    stderr: str


class Unreachable(NodeError):
    """A machine does not answer, or the connection to it was lost."""


def broker_lost(cluster: str, folder: object) -> Unreachable:
    """The error of a command whose broker ended before its answer."""
    return Unreachable(
        f"the broker of ssh connections to {cluster} ended", f"try again; see {folder}/broker.log"
    )
