"""Timeouts of NCCL's collectives, from the lines of PyTorch that users posted."""

import pytest

from engine.agent.judge.failure_patterns import RECENT, Clues
from engine.contract.worker_events import NodeFact

NAMES = ["node0", "node1", "node2"]


def timeout(rank: int, number: int = 808, prefix: str = "") -> str:
    return (
        f"{prefix}[Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
    )


def last_work(rank: int, last: int, group: str = "PG ID 0 PG GUID 0(default_pg)") -> str:
    return (
        f"[rank{rank}]:[E703 15:37:17.178360488 ProcessGroupNCCL.cpp:1987] [{group} Rank {rank}] "
        "Received a dump signal due to a collective timeout from  rank 7 and we will try our best "
        f"to dump the debug info. Last enqueued NCCL work: {last}, last completed NCCL work: 1."
    )


def found(*lines: str, size: int = 0) -> str:
    clues = Clues()
    for process in range(size):
        clues.place(process, process // 2, size)
    for line in lines:
        clues.feed(0, line)
    return clues.collective(NAMES)


MODERN = "[rank{}]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] "


def test_a_rank_that_enqueued_less_did_not_arrive() -> None:
    lines = [timeout(r, prefix=MODERN.format(r)) for r in (0, 1, 3)]
    assert found(*lines, last_work(2, 807), size=4) == (
        "NCCL's ALLREDUCE number 808 timed out after 600 s: rank 2 (node1) did not arrive"
    )


def test_one_that_never_enqueued_anything_did_not_arrive_either() -> None:
    text = found(timeout(0), last_work(1, -1))
    assert text == "NCCL's ALLREDUCE number 808 timed out after 600 s: rank 1 did not arrive"


@pytest.mark.parametrize(
    "report",
    [
        "\t - To our best knowledge, ranks [1, 3] are the lagging ranks that caused this timeout."
        " They never joined any collectives",
        "\t     [1, 3] finished collective #807, but didn't join collective #808 (count from 1)",
    ],
)
def test_the_desync_report_names_them(report: str) -> None:
    assert found(timeout(0), report, size=6) == (
        "NCCL's ALLREDUCE number 808 timed out after 600 s: ranks 1, 3 (node0, node1) did not"
        " arrive"
    )


def test_silence_is_no_proof() -> None:
    assert found(timeout(0), timeout(1), timeout(2), size=6) == (
        "NCCL's ALLREDUCE number 808 timed out after 600 s: ranks 0-2 (node0, node1) waited,"
        " ranks 3-5 (node1, node2) reported nothing"
    )


def test_nothing_is_said_of_ranks_of_other_groups() -> None:
    lines = [timeout(0, prefix=MODERN.format(4)), last_work(4, 7, "PG ID 2 PG GUID 3")]
    assert found(*lines, size=6) == (
        "NCCL's ALLREDUCE number 808 timed out after 600 s: rank 4 (node2) waited"
    )


def test_the_first_collective_is_the_one_that_blocks() -> None:
    """Of pytorch/pytorch#118369: PyTorch prints all that wait, without sizes."""
    line = (
        "[E ProcessGroupNCCL.cpp:458] [Rank 7] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={}, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 25624887 "
        "milliseconds before timing out."
    )
    lines = [line.format(number) for number in (96120, 96117, 96125)]
    text = found(*lines)
    assert text == "NCCL's _ALLGATHER_BASE number 96117 timed out after 1800 s: rank 7 waited"


def test_pytorch_1_12_prints_no_number() -> None:
    line = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, "
        "TensorShape=[4], Timeout(ms)=1500) ran for 1600 milliseconds before timing out."
    )
    assert found(line) == "NCCL's BROADCAST timed out after 1.5 s: rank 0 waited"


def test_output_without_a_timeout_says_nothing() -> None:
    assert found("NCCL INFO collective", last_work(0, 5), size=2) == ""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "OSError: [Errno 28] No space left on device: '/data/x'",
            "it had no space left: \"OSError: [Errno 28] No space left on device: '/data/x'\"",
        ),
        (
            "  OSError: [Errno 24] Too many open files ",
            "it had no file descriptor left (`ulimit -n`):"
            ' "OSError: [Errno 24] Too many open files"',
        ),
    ],
)
def test_a_recent_complaint_of_a_node_is_quoted(line: str, text: str) -> None:
    clues = Clues()
    clues.feed(1, line)
    assert clues.facts(0) == []
    for _ in range(RECENT - 1):
        clues.feed(1, "step")
    assert [fact.text for fact in clues.facts(1)] == [text]
    clues.feed(1, "step")
    assert clues.facts(1) == []


@pytest.mark.parametrize("job", ["[[11377,0],1]", "[prterun-node0-34@0,1]"])
def test_the_nodes_whose_daemons_mpirun_lost_are_named(job: str) -> None:
    """The lines of open-mpi/ompi#6618, and those of Open MPI 5; a host may be an address."""
    clues = Clues({"10.0.0.2": "node1"})
    for node in ("10.0.0.2", "node1", "other"):
        lines = (
            "ORTE has lost communication with a remote daemon.",
            "",
            f"  HNP daemon   : {job} on node node0",
            f"  Remote daemon: {job} on node {node}",
        )
        assert clues.reads("\n".join(lines))
        for line in lines:
            clues.feed(0, line)
    assert clues.facts(1) == []
    (fact,) = clues.facts(0)
    assert fact == NodeFact("launcher", "mpirun lost its daemon on node1, other")
