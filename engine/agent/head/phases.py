"""The phases of a run and of its nodes: the one table of what moves them.

A row is a phase; it names the kinds that end it, each with the next phase. A kind that a row does
not name changes nothing, so phases never go back; only the next attempt begins with the nodes anew.

A node's kinds are those of its events, and `start`: the supervisor starts its job. A run's kinds
are those of the events of its beginning and its end, and what decisions.py finds in its nodes:

| kind | meaning |
| --- | --- |
| `all_prepared` | every node can start its job: those of the first wave start |
| `first_ready` | the nodes of the first wave are ready, or have ended: the others start |
| `verdict` | the end of the attempt is known: every node that has not ended stops |
| `all_gone` | no process of the run is left on any node |
"""

from __future__ import annotations

Table = dict[str, dict[str, str]]

_ENDS = {"node_exited": "exited", "node_stopped": "exited", "node_gone": "gone"}

NODE: Table = {
    "launching": {"node_prepared": "prepared", "node_ready": "ready", **_ENDS},
    "prepared": {"start": "started", "node_ready": "ready", **_ENDS},
    "started": {"node_ready": "ready", **_ENDS},
    "ready": _ENDS,
    "exited": {"node_gone": "gone"},
    "gone": {},
}
"""The phases of a node in an attempt, from the launch of its worker on."""

_END = {"run_finished": "finished"}  # also of one that was taken up and dropped from the queue

RUN: Table = {
    "queued": {"run_started": "preparing", **_END},
    "preparing": {"all_prepared": "starting", "verdict": "stopping", **_END},
    "starting": {"first_ready": "running", "verdict": "stopping", **_END},
    "running": {"verdict": "stopping", **_END},
    "stopping": {"all_gone": "over", **_END},
    "over": {"attempt_started": "preparing", **_END},
    "finished": {},
}
"""The phases of a run; those from `preparing` to `over` are of each attempt."""

ENDED = ("exited", "gone")
"""The phases of a node whose job has ended."""


def next_phase(table: Table, phase: str, kind: str) -> str:
    """Return the phase after something of this kind."""
    return table[phase].get(kind, phase)
