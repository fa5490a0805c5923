"""Progress of long work as values: rooms report, only `cli/` renders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["start", "running", "done", "failed"]


@dataclass(frozen=True)
class Progress:
    """One step in the work on one thing.

    `stage` groups things (`engine`, `preflight`, `resources`, `boot`, `cloud-init`, `keys`,
    `reach`, `spare`, `lab`, `image`, `destroy`); `subject` is the resource or node
    (`aws:ec2/vpc:Vpc demo`, `node0`).
    A later Progress with the same stage and subject replaces the earlier one on a terminal.
    """

    stage: str
    subject: str
    state: State
    detail: str = ""
    seconds: float | None = None


Reporter = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Report nothing."""
