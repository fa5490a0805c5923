"""A bisect that is over: what was measured and found, in words and as the JSON that is kept."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from config.errors import RunError
from config.files import path_below, write_whole
from config.models import Value
from engine.analysis.bisect.launch import NAME
from engine.analysis.bisect.verdict import (
    How,
    Measurement,
    SpeedEvidence,
    Suspect,
    best,
    node_speeds,
)
from engine.record.history import RunRecord

FOLDER = "bisects"
"""The folder of all bisects, in a target's folder for runs."""

WORDS: dict[How, str] = {
    "alone": "alone (NVLink)",
    "sender": "as sender",
    "receiver": "as receiver",
}


class Bisect(Value):
    """A bisect that is over.

    `nodes` are the names of the nodes; `measured` and `suspects` have places in `nodes`. `runs` are
    the ids of its runs, `planned_runs` the number that was announced. `suspects` are slowest first.
    """

    cluster: str
    began: datetime
    nodes: tuple[str, ...]
    planned_runs: int
    runs: tuple[str, ...]
    measured: tuple[Measurement, ...]
    suspects: tuple[Suspect, ...]
    verdict: str


def keep(bisect: Bisect, runs: Path) -> Path:
    """Write the bisect to the folder of bisects in `runs`, and return the file."""
    name = f"{bisect.cluster}-{bisect.began:%Y%m%d-%H%M%S}.json"
    path = path_below(runs, FOLDER, name)
    write_whole(path, bisect.model_dump_json(indent=2) + "\n")
    return path


def find(run: RunRecord, runs: Path) -> Bisect | None:
    """Return the bisect that the run is a part of; None if there is none, or it did not end."""
    if run.name != NAME:
        return None
    for path in sorted(path_below(runs, FOLDER).glob(f"{run.cluster}-*.json"), reverse=True):
        try:
            kept = Bisect.model_validate_json(path_below(runs, FOLDER, path.name).read_bytes())
        except ValidationError:
            raise RunError(f"{path} does not hold a bisect", "move the file away") from None
        if run.run_id in kept.runs:
            return kept
    return None


def verdict_lines(bisect: Bisect) -> list[str]:
    """Return the verdict, the other suspects, and the speeds of the rings, in a line each."""
    return [
        bisect.verdict,
        *(f"also {describe(suspect, bisect.nodes)}" for suspect in bisect.suspects[1:]),
        ring_line(bisect.nodes, bisect.measured),
    ]


def failure_lines(names: Sequence[str], measured: Sequence[Measurement]) -> list[str]:
    """Return a line for each measurement that failed."""
    return [
        f"{measurement.trial.collective} on"
        f" {' and '.join(names[node] for node in measurement.trial.nodes)}"
        f" failed: {measurement.error}"
        for measurement in measured
        if measurement.error
    ]


def verdict_line(
    names: Sequence[str], slow: Sequence[Suspect], measured: Sequence[Measurement]
) -> str:
    """Return the verdict in one line: the slowest suspect, or how equal all nodes are."""
    return describe(slow[0], names) if slow else _all_alike(names, measured)


def describe(suspect: Suspect, names: Sequence[str]) -> str:
    """Return which nodes are slow, how much, and what was measured, in one line."""
    percent = f"{int(100 * suspect.shortfall)} % below"
    if len(suspect.nodes) == 2:
        speeds = ", ".join(
            f"{names[measured.nodes[0]]} to {names[measured.nodes[1]]} {_speeds(measured)}"
            for measured in suspect.evidence
        )
        both = " and ".join(names[node] for node in suspect.nodes)
        return f"{both}: {percent} what both reach with others ({speeds})"
    ways = [WORDS[pair.how] for pair in suspect.evidence]
    words = " and ".join(ways).replace("as sender and as receiver", "as sender and receiver")
    speeds = ", ".join(_speeds(measured) for measured in suspect.evidence)
    return f"{names[suspect.nodes[0]]}: {percent} the median of {len(names)} {words} ({speeds})"


def ring_line(names: Sequence[str], measured: Sequence[Measurement]) -> str:
    """Return the speed of the ring of all nodes, and of the one without the suspect's last node."""
    rings = best(
        measurement
        for measurement in measured
        if len(measurement.trial.nodes) > 1 and _is_ring(measurement)
    )
    everyone = tuple(range(len(names)))
    line = f"the ring of all {len(names)} nodes: {rings.get(everyone, 0.0):.3g} GB/s"
    for nodes, speed in rings.items():
        if nodes != everyone:
            (left_out,) = set(everyone) - set(nodes)
            line += f"; without {names[left_out]}: {speed:.3g} GB/s"
    return line


def _is_ring(measurement: Measurement) -> bool:
    return measurement.trial.collective == "all_reduce"


def _speeds(evidence: SpeedEvidence) -> str:
    return f"{evidence.gbps:.3g} of {evidence.usual:.3g} GB/s"


def _all_alike(names: Sequence[str], measured: Sequence[Measurement]) -> str:
    if len(names) < 3 and not node_speeds(measured)["alone"]:
        return "nothing to compare: two nodes are one pair, and it takes three to name a slow one"
    spreads = [
        f"{WORDS[how]} {min(of.values()):.3g} to {max(of.values()):.3g} GB/s"
        for how, of in node_speeds(measured).items()
        if of
    ]
    return f"no node and no pair is slow: {len(names)} nodes, {', '.join(spreads)}"
