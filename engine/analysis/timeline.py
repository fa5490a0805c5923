"""The timeline of a run: when each node's job ran, and what else happened."""

from collections.abc import Iterable

from config.models import Value
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    GpusIdle,
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
    RankStarted,
)


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
        case NetworkSeen() | OutputJudged() | ClockSet():
            text = f"{event.level}: {event.text}"
        case NodeExited():
            signal = f", signal {event.signal}" if event.signal else ""
            text = f"job exited with {event.exit_code}{signal}"
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
