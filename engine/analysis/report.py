"""The report of a run as a value: all that its page shows, without any I/O."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import AwareDatetime

from config.catalogue.instance_types import catalogue, price_usd_h
from config.models import Value
from engine.analysis.bisect.report import Bisect
from engine.analysis.metrics.curves import CourseOfRun
from engine.analysis.metrics.summary import NodeSummary
from engine.analysis.timeline import Timeline
from engine.record.history import KeptFinding, RunRecord
from engine.record.nccl_tests import Table
from engine.record.run_context import Setting


class Pair(Value):
    """The bus bandwidth between two hosts in GB/s, None if their test failed."""

    first: str
    second: str
    busbw: float | None


class Report(Value):
    """A run and all that is known about it; `setting` is None if it is not known.

    `pairs` is empty for a run of a bisect: the whole `bisect` has them. `used` is what the nodes
    used, and `course` how that went on; both are empty without metrics. `last_lines` are the last
    ones of the node that failed first. `lease_end` is when the cluster ends by itself, None if that
    is not known. `files` are those of this machine that have more of the run.
    """

    run: RunRecord
    setting: Setting | None
    tables: tuple[Table, ...]
    findings: tuple[KeptFinding, ...]
    timeline: Timeline
    pairs: tuple[Pair, ...] = ()
    bisect: Bisect | None = None
    used: tuple[NodeSummary, ...] = ()
    course: CourseOfRun = CourseOfRun()
    last_lines: tuple[str, ...] = ()
    lease_end: AwareDatetime | None = None
    files: tuple[Path, ...] = ()

    @property
    def names(self) -> list[str]:
        """The nodes' names in rank order."""
        known = list(self.timeline.nodes)
        return known + [f"node{rank}" for rank in range(len(known), self.run.nodes)]

    @property
    def nodes_usd(self) -> float | None:
        """The dollars for the run's nodes from its start to its end; None if not known."""
        price = price_usd_h(self.setting.instance_type) if self.setting else None
        if price is None or self.run.ended is None:
            return None
        hours = (self.run.ended - self.run.started).total_seconds() / 3600
        return price * self.run.nodes * hours

    def node(self, rank: int) -> str:
        """Return the name of the node with this rank."""
        return self.names[rank] if rank < len(self.names) else f"node number {rank}"

    @property
    def network_gbs(self) -> float | None:
        """The network bandwidth of a node in GB/s as EC2 states it; None for a single node."""
        entry = catalogue().get(self.setting.instance_type) if self.setting else None
        return entry.network.gbps / 8 if entry and self.run.nodes > 1 else None


def bisects_in(reports: Iterable[Report]) -> list[Bisect]:
    """Return the bisects that the runs are parts of, each once."""
    return list(dict.fromkeys(report.bisect for report in reports if report.bisect))


_BOUND_BY_NODE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def reference_gbs(title: str, reports: Iterable[Report]) -> float | None:
    """Return the bandwidth with which a chart's lines can be compared; None if there is no one.

    A ring over all nodes moves the data once through each node's network, so its bus bandwidth is
    at most that: "the bus bandwidth should reflect the speed of the hardware bottleneck"
    (doc/PERFORMANCE.md, https://github.com/NVIDIA/nccl-tests, 2026-11-22). Trees that reduce
    within NVLink's switches can exceed it. Other collectives do not move their data in a ring.
    """
    speeds = {report.network_gbs for report in reports}
    is_ring = title.split(maxsplit=1)[0].removesuffix("_perf") in _BOUND_BY_NODE
    return speeds.pop() if is_ring and len(speeds) == 1 else None


def pairs_in(tables: Iterable[Table]) -> tuple[Pair, ...]:
    """Return the best bandwidth of every two hosts that were tested alone; none for one pair."""
    best: dict[tuple[str, str], float | None] = {}
    for table in tables:
        hosts = sorted({rank.host for rank in table.facts.ranks})
        if len(hosts) != 2:
            continue
        halves = (half for row in table.rows for half in (row.out_of_place, row.in_place))
        speeds = [half.busbw for half in halves if half is not None]
        speeds += [before] if (before := best.get((hosts[0], hosts[1]))) is not None else []
        best[hosts[0], hosts[1]] = max(speeds, default=None)
    if len(best) < 2:
        return ()
    return tuple(
        Pair(first=first, second=second, busbw=busbw) for (first, second), busbw in best.items()
    )
