"""The events of a run's output: its lines, and what the supervisor reads from them."""

from typing import Any, Literal

from config.bounds import Rank, Time, Whole
from config.models import Value


class NetworkSeen(Value):
    """A finding about the network that the node `rank` uses, in one line.

    `proof`: it is the network that the run's preset promises; `warning`: it is not, but the run
    goes on; `fault`: it is not, and the run fails.
    """

    kind: Literal["network_seen"] = "network_seen"
    time: Time
    rank: Rank
    level: Literal["proof", "warning", "fault"]
    text: str


class OutputJudged(Value):
    """A finding about the output of the node `rank`, in one line.

    `warning`: the run goes on and may end as done; `fault`: the run ends as failed.
    """

    kind: Literal["output_judged"] = "output_judged"
    time: Time
    rank: Rank
    level: Literal["warning", "fault"]
    text: str


class CaseStarted(Value):
    """Case `number` of `of` cases of nccl-tests starts; `left_s` is None before one has ended.

    `left_s` is an estimate of the seconds to the end of the last case.
    """

    kind: Literal["case_started"] = "case_started"
    time: Time
    number: Whole
    of: Whole
    title: str
    left_s: float | None


class GateJudged(Value):
    """The verdict of a gate on a bandwidth, in one line; `cases` are the numbers of its cases.

    `proof`: it is reached; `warning` and `fault`: it is not. `busbw` and `expected` are in GB/s;
    `busbw` is None if the size was not measured. `source` is that of `expected`.
    """

    kind: Literal["gate_judged"] = "gate_judged"
    time: Time
    rank: Rank
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
    time: Time
    rank: Rank
    case: Whole = 0
    document: dict[str, Any]


class Output(Value):
    """Lines of the job's output, with line feeds between; without `ends_line` the last is a piece.

    `offset` is their position in the node's `rank-N.log`, in bytes.
    """

    kind: Literal["output"] = "output"
    time: Time
    rank: Rank
    stream: Literal["stdout", "stderr"]
    text: str
    ends_line: bool = True
    offset: Whole = 0


class DroppedOutput(Value):
    """Removed output of a rank: its size in bytes, and the times of its first and last event.

    `sequence` is the worker's number of the last event.
    """

    rank: Rank
    size: Whole
    since: Time
    until: Time
    sequence: Whole = 0


class OutputDropped(Value):
    """Output that was removed because the journal was over its budget.

    It was at the offsets `start` to `end` of the journal. Without `ranks`, a client left other
    events out (engine/event_budget.py).
    """

    kind: Literal["output_dropped"] = "output_dropped"
    time: Time
    start: Whole
    end: Whole
    ranks: tuple[DroppedOutput, ...]
