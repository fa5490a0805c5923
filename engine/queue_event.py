"""The event of a run that waits for its nodes, and a run's nodes; engine/events.py has the rest."""

from typing import Literal

from config.bounds import Rank, Text, Time, Whole
from config.identifiers import ClusterName, NodeName, RunId, RunName, SshHost
from config.models import Value
from config.run.container_fields import Port


class RunNode(Value):
    """A node of the run."""

    rank: Rank
    name: NodeName
    private_ip: SshHost
    role: Text


class RunQueued(Value):
    """The run waits for its nodes, at `place` (from 1) of the queue; `ahead` are runs before it.

    It comes again when place or runs change. A run that leaves the queue has no other event but
    `run_finished`. Like `run_started` it has what a client that did not start the run needs.
    """

    kind: Literal["run_queued"] = "run_queued"
    time: Time
    run_id: RunId
    name: RunName
    cluster: ClusterName
    on_stop: Literal["keep", "destroy"]
    outputs: tuple[Text, ...] = ()
    saved: Text = ""
    notifies: bool = False
    ports: tuple[Port, ...] = ()
    nodes: tuple[RunNode, ...]
    place: Whole
    ahead: tuple[RunId, ...]
