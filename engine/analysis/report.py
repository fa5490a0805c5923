"""The report of a run as a value: all that its page shows, without any I/O.

Its timeline says when each node's job ran, and what else happened.
"""

from collections.abc import Iterable
from pathlib import Path

from pydantic import AwareDatetime

from config.catalogue.instance_types import catalogue, price_usd_h
from config.models import Value
from engine.analysis.bisect.report import Bisect
from engine.analysis.metrics.summary import CourseOfRun, NodeSummary
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    GpusIdle,
    HangJudged,
    LeaseEnding,
    NetworkSeen,
    NodeAnswersAgain,
    NodeLost,
    NodeUnreachable,
    OutputJudged,
    PoweringOff,
    RunFinished,
    RunStarted,
)
from engine.contract.worker_events import (
    ClockSet,
    DiskFull,
    NodeExamined,
    NodeExited,
    NodeInterrupted,
    NodeReady,
    NodeStarted,
    NodeStopped,
    NoticeGiven,
    RankStarted,
)
from engine.record.history import KeptFinding, RunRecord
from engine.record.result import Table
from engine.record.run_context import Setting


class Moment(Value):
    """Something that happened `at` seconds after the run's start; `node` is empty for the run."""

    at: float
    node: str
    text: str


class Span(Value):
    """The time of a node's job, in seconds after the run's start, and how it ended."""

    node: str
    start: float
    end: float
    outcome: str


class Timeline(Value):
    """The events of a run from its journal; `nodes` are the names in rank order."""

    nodes: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    moments: tuple[Moment, ...] = ()


def timeline(events: Iterable[Event]) -> Timeline:
    """Return the timeline; an empty one without events."""
    nodes: tuple[str, ...] = ()
    names = nodes  # of the present attempt
    moments: list[Moment] = []
    started: dict[str, float] = {}
    ended: dict[str, tuple[float, str]] = {}
    begin = last = 0.0
    for event in events:
        if isinstance(event, RunStarted):
            nodes = names = tuple(node.name for node in event.nodes)
            begin = event.time
        elif isinstance(event, AttemptStarted) and event.nodes:
            names = tuple(node.name for node in event.nodes)
        last = max(last, event.time - begin)
        words = _words(event)
        if words is None:
            continue
        rank = getattr(event, "rank", None)
        node = "" if rank is None else names[rank] if rank < len(names) else f"node number {rank}"
        moments.append(Moment(at=max(event.time - begin, 0), node=node, text=words))
        if isinstance(event, NodeStarted):
            started[node] = moments[-1].at
        elif isinstance(event, (NodeExited, NodeStopped, NodeLost)):
            ended.setdefault(node, (moments[-1].at, words))
    spans = (
        Span(node=node, start=start, end=max(end, start), outcome=outcome)
        for node, start in started.items()
        for end, outcome in (ended.get(node, (last, "no end was reported")),)
    )
    return Timeline(nodes=nodes, spans=tuple(spans), moments=tuple(moments))


def _words(event: Event) -> str | None:
    """Return what happened in a few words; None for output and other events of no interest."""
    text = _trouble(event)
    match event:
        case RunStarted():
            text = f"run started, startup {event.startup_order}"
        case NodeStarted():
            text = "job started"
        case NodeReady():
            text = "ready"
        case RankStarted():
            text = f"rank {event.process} of {event.size} started"
        case NetworkSeen() | OutputJudged() | ClockSet() | HangJudged():
            text = f"{event.level}: {event.text}"
        case NodeExited():
            signal = f", signal {event.signal}" if event.signal else ""
            text = f"job exited with {event.exit_code}{signal}"
        case NoticeGiven():
            text = f"notice to the job: {event.text}"
        case LeaseEnding():
            text = "notice to the job: the cluster's lifetime ends"
        case RunFinished():
            text = f"run {event.status}" + (f": {event.reason}" if event.reason else "")
    return text


def _trouble(event: Event) -> str | None:
    text = None
    match event:
        case NodeStopped():
            text = f"job stopped: {event.reason}" if event.reason else "job stopped"
        case NodeLost() | NodeUnreachable():
            text = f"{event.kind.removeprefix('node_')}: {event.reason}"
        case NodeInterrupted():
            text = f"AWS reclaims the spot instance at {event.at}"
        case NodeAnswersAgain():
            text = f"answers again after {event.silence_s:.0f} s"
        case DiskFull():
            text = event.text
        case GpusIdle():
            text = f"{len(event.gpus)} GPUs without work for {event.seconds / 60:.0f} min"
        case NodeExamined():
            text = "; ".join(fact.text for fact in event.facts) or None
        case PoweringOff():
            text = "nodes power off"
    return text


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
