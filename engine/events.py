"""The events of a run, as they are in its journal: one JSON object per line.

The agent writes them (engine/agent). The client reads them and stores the same lines.
`time` is in seconds since the epoch, by the clock of the machine where the event happened.
"""

import json
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from config.models import Value
from engine.gates import Sweep


class RunNode(Value):
    """A node of the run."""

    rank: int
    name: str
    private_ip: str
    role: str


class RunStarted(Value):
    """The supervisor has the plan. `nodes` are in rank order."""

    kind: Literal["run_started"] = "run_started"
    time: float
    run_id: str
    name: str
    cluster: str
    startup_order: str
    stop_criteria: str
    on_stop: Literal["keep", "destroy"]
    programs: tuple[str, ...] = ()
    sweep: Sweep | None = None
    nodes: tuple[RunNode, ...]


class NodeStarted(Value):
    """The job's bash runs on the node."""

    kind: Literal["node_started"] = "node_started"
    time: float
    rank: int
    pid: int


class NodeReady(Value):
    """The node is ready: nodes that wait for it may start."""

    kind: Literal["node_ready"] = "node_ready"
    time: float
    rank: int


class RankStarted(Value):
    """A launcher started rank `process` of `size` on the node `rank`."""

    kind: Literal["rank_started"] = "rank_started"
    time: float
    rank: int
    process: int
    size: int


class NetworkSeen(Value):
    """A finding about the network that the node `rank` uses, in one line.

    `proof`: it is the network that the run's preset promises; `warning`: it is not, but the run
    goes on; `fault`: it is not, and the run fails.
    """

    kind: Literal["network_seen"] = "network_seen"
    time: float
    rank: int
    level: Literal["proof", "warning", "fault"]
    text: str


class OutputJudged(Value):
    """A finding about the output of the node `rank`, in one line.

    `warning`: the run goes on and may end as done; `fault`: the run ends as failed.
    """

    kind: Literal["output_judged"] = "output_judged"
    time: float
    rank: int
    level: Literal["warning", "fault"]
    text: str


class CaseStarted(Value):
    """Case `number` of `of` cases of nccl-tests starts; `left_s` is None before one has ended.

    `left_s` is an estimate of the seconds to the end of the last case.
    """

    kind: Literal["case_started"] = "case_started"
    time: float
    number: int
    of: int
    title: str
    left_s: float | None


class GateJudged(Value):
    """The verdict of a gate on a bandwidth, in one line; `cases` are the numbers of its cases.

    `proof`: it is reached; `warning` and `fault`: it is not. `busbw` and `expected` are in GB/s;
    `busbw` is None if the size was not measured. `source` is that of `expected`.
    """

    kind: Literal["gate_judged"] = "gate_judged"
    time: float
    rank: int
    level: Literal["proof", "warning", "fault"]
    text: str
    cases: tuple[int, ...]
    busbw: float | None
    expected: float
    source: str


class TableWritten(Value):
    """The JSON that a program of nccl-tests wrote on the node `rank`, without its `env`.

    `case` is the number of the program's case.
    """

    kind: Literal["table_written"] = "table_written"
    time: float
    rank: int
    case: int = 0
    document: dict[str, Any]


class Output(Value):
    """A line of the job's output, or a piece of one if `ends_line` is false.

    `offset` is its position in the node's `rank-N.log`, in bytes.
    """

    kind: Literal["output"] = "output"
    time: float
    rank: int
    stream: Literal["stdout", "stderr"]
    text: str
    ends_line: bool = True
    offset: int = 0


class NodeExited(Value):
    """The job ended by itself on the node; `exit_code` is 128 + N if signal N ended it."""

    kind: Literal["node_exited"] = "node_exited"
    time: float
    rank: int
    exit_code: int
    signal: int | None


class NodeStopped(Value):
    """The supervisor ended the node's job because the run is over; `reason` has details, if any."""

    kind: Literal["node_stopped"] = "node_stopped"
    time: float
    rank: int
    reason: str = ""


class NodeInterrupted(Value):
    """AWS's notice that it reclaims the node's spot instance.

    `action` is `terminate` for all instances of gpuctl; `at` is its time as AWS writes it
    (`2026-11-20T08:22:00Z`).
    """

    kind: Literal["node_interrupted"] = "node_interrupted"
    time: float
    rank: int
    action: str
    at: str


class NodeAnswersAgain(Value):
    """The node answers again after `silence_s` seconds without a heartbeat; the run goes on."""

    kind: Literal["node_answers_again"] = "node_answers_again"
    time: float
    rank: int
    silence_s: float


class DiskFull(Value):
    """A file of the run on the node cannot be written, `text` names it and why; the job goes on."""

    kind: Literal["disk_full"] = "disk_full"
    time: float
    rank: int
    text: str


class NodeUnreachable(Value):
    """ssh did not reach the node, so its worker was not started."""

    kind: Literal["node_unreachable"] = "node_unreachable"
    time: float
    rank: int
    reason: str


class Evidence(Value):
    """The state of a lost node as `source` (a command or a file) showed it at the time."""

    kind: Literal["evidence"] = "evidence"
    time: float
    rank: int
    node: str
    source: str
    text: str


class NodeLost(Value):
    """The node's worker ended without a report, does not answer, or did not stop in time."""

    kind: Literal["node_lost"] = "node_lost"
    time: float
    rank: int
    reason: str


class RunFinished(Value):
    """The run is over, and no process of it is left on any node."""

    kind: Literal["run_finished"] = "run_finished"
    time: float
    status: Literal["done", "failed", "stopped"]
    exit_code: int
    first_failed_rank: int | None
    reason: str


class PoweringOff(Value):
    """The nodes power off, because the run has `on_stop: destroy` and no client destroys them."""

    kind: Literal["powering_off"] = "powering_off"
    time: float


class SupervisorLost(Value):
    """The supervisor ended before the run did; each node ends its part of the run by itself."""

    kind: Literal["supervisor_lost"] = "supervisor_lost"
    time: float


Event = (
    RunStarted
    | NodeStarted
    | NodeReady
    | RankStarted
    | NetworkSeen
    | OutputJudged
    | CaseStarted
    | GateJudged
    | TableWritten
    | Output
    | NodeExited
    | NodeStopped
    | NodeInterrupted
    | NodeAnswersAgain
    | DiskFull
    | NodeUnreachable
    | NodeLost
    | Evidence
    | RunFinished
    | PoweringOff
    | SupervisorLost
)

_EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])

KINDS = frozenset(event.model_fields["kind"].default for event in get_args(Event))
"""The kinds of events that this version knows."""


def parse_event(line: str) -> Event | None:
    """Return the event of a journal's line; None for a kind that this version does not know.

    For a malformed event of a known kind it returns a warning about it, which the run reports.
    Raises ValueError for a line that is not JSON, such as an incomplete one.
    """
    value = json.loads(line)
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        return None
    try:
        event: Event = _EVENT.validate_python(value)
    except ValidationError as error:
        return _malformed(value, error)
    return event


def _malformed(value: dict[str, Any], error: ValidationError) -> OutputJudged:
    """Return a warning that names the event's kind and the first wrong field, not its value."""
    first = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or "event"
    time, rank = value.get("time"), value.get("rank")
    return OutputJudged(
        time=time if isinstance(time, float) else 0.0,
        rank=rank if isinstance(rank, int) else 0,
        level="warning",
        text=f"the head sent a malformed event `{value['kind']}`, which is left out: {field}:"
        f" {first['msg']}; the head may have another version of gpuctl",
    )
