"""The event of a run that waits for its nodes, and a run's nodes; engine/events.py has the rest."""

from typing import Literal

from config.models import Value


class RunNode(Value):
    """A node of the run."""

    rank: int
    name: str
    private_ip: str
    role: str


class RunQueued(Value):
    """The run waits for its nodes, at `place` (from 1) of the queue; `ahead` are runs before it.

    It comes again when place or runs change. A run that leaves the queue has no other event but
    `run_finished`. Like `run_started` it has what a client that did not start the run needs.
    """

    kind: Literal["run_queued"] = "run_queued"
    time: float
    run_id: str
    name: str
    cluster: str
    on_stop: Literal["keep", "destroy"]
    outputs: tuple[str, ...] = ()
    saved: str = ""
    notifies: bool = False
    ports: tuple[str, ...] = ()
    nodes: tuple[RunNode, ...]
    place: int
    ahead: tuple[str, ...]
