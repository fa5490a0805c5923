"""What happens in a run, as the journal tells it: one JSON object per line.

The agent writes them (engine/agent), the client reads them, and keeps the same lines.
`time` is seconds since the epoch on the machine where it happened.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from config.models import Value


class RunNode(Value):
    """A node of the run."""

    rank: int
    name: str
    private_ip: str
    role: str


class RunStarted(Value):
    """The supervisor has the plan; nodes in rank order."""

    kind: Literal["run_started"] = "run_started"
    time: float
    run_id: str
    name: str
    cluster: str
    startup_order: str
    stop_criteria: str
    on_stop: Literal["keep", "destroy"]
    programs: tuple[str, ...] = ()
    nodes: tuple[RunNode, ...]


class NodeStarted(Value):
    """The job's bash runs on the node."""

    kind: Literal["node_started"] = "node_started"
    time: float
    rank: int
    pid: int


class NodeReady(Value):
    """The node is ready for those that wait for it."""

    kind: Literal["node_ready"] = "node_ready"
    time: float
    rank: int


class RankStarted(Value):
    """Rank `process` of a launcher's `size` ranks has begun on the node `rank`."""

    kind: Literal["rank_started"] = "rank_started"
    time: float
    rank: int
    process: int
    size: int


class NetworkSeen(Value):
    """What output tells about the network that the node `rank` uses, in one line.

    `proof`: it is what the run's preset promises; `warning`: it is not, and the run goes on;
    `fault`: it is not, and the run fails of it.
    """

    kind: Literal["network_seen"] = "network_seen"
    time: float
    rank: int
    level: Literal["proof", "warning", "fault"]
    text: str


class OutputJudged(Value):
    """What output of the node `rank` says against the run, in one line.

    `warning`: the run goes on and may be done; `fault`: the run ends as failed.
    """

    kind: Literal["output_judged"] = "output_judged"
    time: float
    rank: int
    level: Literal["warning", "fault"]
    text: str


class TableWritten(Value):
    """What a program of nccl-tests wrote on the node `rank` as JSON, without its environment."""

    kind: Literal["table_written"] = "table_written"
    time: float
    rank: int
    document: dict[str, Any]


class Output(Value):
    """A line of the job, or a piece of one where `ends_line` is false.

    `offset` is where it begins in the node's `rank-N.log`, in bytes.
    """

    kind: Literal["output"] = "output"
    time: float
    rank: int
    stream: Literal["stdout", "stderr"]
    text: str
    ends_line: bool = True
    offset: int = 0


class NodeExited(Value):
    """The job ended by itself on the node; `exit_code` is 128 + N where signal N ended it."""

    kind: Literal["node_exited"] = "node_exited"
    time: float
    rank: int
    exit_code: int
    signal: int | None


class NodeStopped(Value):
    """The node's part was ended because the run is over; `reason` says what else was special."""

    kind: Literal["node_stopped"] = "node_stopped"
    time: float
    rank: int
    reason: str = ""


class NodeInterrupted(Value):
    """AWS takes the node's spot instance back: `action` (`terminate`, as all of gpuctl's) comes at
    `at`, in AWS's writing (`2026-11-20T08:22:00Z`).
    """

    kind: Literal["node_interrupted"] = "node_interrupted"
    time: float
    rank: int
    action: str
    at: str


class NodeAnswersAgain(Value):
    """The node was not heard for `silence_s` seconds, and the run has survived that."""

    kind: Literal["node_answers_again"] = "node_answers_again"
    time: float
    rank: int
    silence_s: float


class DiskFull(Value):
    """A file of the run on the node takes no more; `text` says which, and why. The job goes on."""

    kind: Literal["disk_full"] = "disk_full"
    time: float
    rank: int
    text: str


class NodeUnreachable(Value):
    """The node's worker could not be started, because ssh did not reach the node."""

    kind: Literal["node_unreachable"] = "node_unreachable"
    time: float
    rank: int
    reason: str


class Evidence(Value):
    """What `source` (a command, a file) showed about a node that was lost, when it was."""

    kind: Literal["evidence"] = "evidence"
    time: float
    rank: int
    node: str
    source: str
    text: str


class NodeLost(Value):
    """The node's worker is gone without an answer, or did not stop in time."""

    kind: Literal["node_lost"] = "node_lost"
    time: float
    rank: int
    reason: str


class RunFinished(Value):
    """The run is over, and no node has a process of it."""

    kind: Literal["run_finished"] = "run_finished"
    time: float
    status: Literal["done", "failed", "stopped"]
    exit_code: int
    first_failed_rank: int | None
    reason: str


class PoweringOff(Value):
    """Nobody took over the destruction that the run asks for: the nodes power off."""

    kind: Literal["powering_off"] = "powering_off"
    time: float


class SupervisorLost(Value):
    """The supervisor went without ending the run; the nodes end it by themselves."""

    kind: Literal["supervisor_lost"] = "supervisor_lost"
    time: float


Event = (
    RunStarted
    | NodeStarted
    | NodeReady
    | RankStarted
    | NetworkSeen
    | OutputJudged
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


def parse_event(line: str) -> Event | None:
    """The event of a journal's line; None for a kind that this version does not know.

    ValueError for what is no JSON: a line that broke off.
    """
    value = json.loads(line)
    try:
        event: Event = _EVENT.validate_python(value)
    except ValidationError:
        return None
    return event
