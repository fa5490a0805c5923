"""The verdict on a silent job: recorded stacks of real ranks, and made ones."""

import json
from pathlib import Path

import pytest

from engine.agent.judge.hangs import HangVerdict, Seen, judge_hang
from engine.agent.node.rank_processes import python_threads
from engine.contract.worker_events import Frame, RankProcess

RECORDED = Path(__file__).parents[2] / "hang_stacks"
DISTRIBUTED = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py"
ALL_REDUCE = (Frame("all_reduce", DISTRIBUTED, 1534), Frame("train", "/job/train.py", 30))
BARRIER = (Frame("barrier", DISTRIBUTED, 3000), Frame("train", "/job/train.py", 44))
LOAD = (
    Frame("select", "/usr/lib/python3.11/selectors.py", 415),
    Frame("_try_get_data", "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9),
    Frame("load", "/job/train.py", 88),
)


def recorded(fault: str) -> list[Seen]:
    """The four ranks of the job, two on each node."""
    ranks = json.loads((RECORDED / f"{fault}.json").read_text())
    return [
        Seen(f"node{rank['rank'] // 2}", made_of(rank, python_threads(rank["dump"])))
        for rank in ranks
    ]


def made_of(rank: dict[str, int], threads: dict[int, tuple[str, list[Frame]]]) -> RankProcess:
    fields = {name: value for name, value in rank.items() if name != "dump"}
    return RankProcess(**fields, frames=tuple(threads[rank["pid"]][1]), text="")  # type: ignore[arg-type]


def process(
    rank: int | None,
    frames: tuple[Frame, ...] = (),
    *,
    size: int | None = 4,
    state: str = "S",
    wchan: str = "futex_do_wait",
    has_run: bool = False,
) -> RankProcess:
    pid = 4711 + (rank or 0)
    return RankProcess(pid, rank, size, "python3", state, wchan, has_run, frames, "")


def verdict(*processes: RankProcess, silent: tuple[str, ...] = ()) -> HangVerdict:
    seen = [Seen(f"node{(each.rank or 0) // 2}", each) for each in processes]
    return judge_hang(seen, {0: "node0", 1: "node0", 2: "node1", 3: "node1"}, silent)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("loader", "rank 3 (node1) waits in load (job.py:12)"),
        ("dataloader", "rank 3 (node1) waits in train (job.py:32, in dataloader.py)"),
        ("lock", "rank 3 (node1) waits in train (job.py:35)"),
        ("barrier", "rank 3 (node1) waits in barrier (job.py:38)"),
        ("spin", "rank 3 (node1) runs in spin (job.py:50)"),
    ],
)
def test_rank_that_is_elsewhere_in_a_real_job_is_named(fault: str, text: str) -> None:
    others = "; the 3 others wait in all_reduce (job.py:20)"
    assert judge_hang(recorded(fault), {}, []) == HangVerdict(text + others, "node1")


def test_rank_that_is_stopped_in_a_real_job_is_named() -> None:
    text = "rank 3 (node1) is stopped (by SIGSTOP or SIGTSTP)"
    assert judge_hang(recorded("stopped"), {}, []) == HangVerdict(text, "node1")


def test_several_stopped_ranks_are_named_with_no_common_node() -> None:
    ranks = [process(rank, ALL_REDUCE, state="T" if rank in (1, 2) else "S") for rank in range(4)]
    text = "rank 1 (node0) and rank 2 (node1) are stopped (by SIGSTOP or SIGTSTP)"
    assert verdict(*ranks) == HangVerdict(text)


def test_rank_in_a_debugger_is_named() -> None:
    ranks = [process(0, state="t"), *(process(rank) for rank in (1, 2, 3))]
    assert verdict(*ranks).text == "rank 0 (node0) is stopped by a debugger"


def test_rank_without_a_process_is_named_with_the_node_on_which_it_started() -> None:
    ranks = [process(rank, ALL_REDUCE) for rank in (0, 1, 3)]
    assert verdict(*ranks) == HangVerdict("rank 2 (node1) has no process", "node1")
    unplaced = judge_hang([Seen("node0", each) for each in ranks[:2]], {}, [])
    assert unplaced == HangVerdict("rank 2 and rank 3 have no process")


def test_rank_that_is_left_alone_is_named_before_those_that_have_ended() -> None:
    others = "rank 0 (node0), rank 2 (node1) and rank 3 (node1) have no process"
    seen = [Seen("node0", process(1, LOAD)), Seen("node1", process(None, LOAD))]
    nodes = {0: "node0", 2: "node1", 3: "node1"}
    assert judge_hang(seen, nodes, []) == HangVerdict(
        f"rank 1 (node0) waits in load (train.py:88, in dataloader.py); {others}", "node0"
    )
    two = [process(rank, LOAD if rank else ALL_REDUCE, size=4) for rank in (0, 1)]
    assert verdict(*two) == HangVerdict(
        "rank 1 (node0) waits in load (train.py:88, in dataloader.py); the other waits in"
        " all_reduce (train.py:30); rank 2 (node1) and rank 3 (node1) have no process",
        "node0",
    )
    two = [process(rank, LOAD) for rank in (0, 1)]
    assert verdict(*two).text == (
        "the others wait in load (train.py:88, in dataloader.py): no rank differs; rank 2 (node1)"
        " and rank 3 (node1) have no process"
    )


def test_no_rank_is_missing_while_a_node_gave_no_evidence() -> None:
    ranks = [process(rank, ALL_REDUCE) for rank in (0, 1)]
    assert verdict(*ranks, silent=("node1",)).text == (
        "all 2 ranks wait in all_reduce (train.py:30): no rank differs, so a link or a program"
        " outside the job may be silent; no evidence from node1"
    )


def test_no_rank_is_named_if_none_differs() -> None:
    assert verdict(*(process(rank, ALL_REDUCE) for rank in range(4))) == HangVerdict(
        "all 4 ranks wait in all_reduce (train.py:30): no rank differs, so a link or a program"
        " outside the job may be silent"
    )
    assert verdict(*(process(rank, LOAD) for rank in range(4))) == HangVerdict(
        "all 4 ranks wait in load (train.py:88, in dataloader.py): no rank differs"
    )


def test_no_rank_is_named_if_two_halves_differ() -> None:
    ranks = [process(rank, ALL_REDUCE if rank < 2 else BARRIER) for rank in range(4)]
    assert verdict(*ranks) == HangVerdict(
        "rank 0 (node0) and rank 1 (node0) wait in all_reduce (train.py:30); rank 2 (node1) and"
        " rank 3 (node1) wait in barrier (train.py:44)"
    )


def test_of_two_ranks_the_one_outside_the_collective_is_named() -> None:
    ranks = process(0, LOAD, size=2), process(1, ALL_REDUCE, size=2)
    assert verdict(*ranks).text == (
        "rank 0 (node0) waits in load (train.py:88, in dataloader.py); the other waits in"
        " all_reduce (train.py:30)"
    )


def test_rank_whose_stack_could_not_be_read_is_no_outlier() -> None:
    ranks = [process(rank, ALL_REDUCE if rank else ()) for rank in range(4)]
    assert verdict(*ranks) == HangVerdict(
        "all 3 ranks wait in all_reduce (train.py:30): no rank differs, so a link or a program"
        " outside the job may be silent; the stack of rank 0 (node0) could not be read"
    )


def test_ranks_of_a_program_without_stacks_are_compared_by_the_kernel() -> None:
    ranks = [process(rank, has_run=rank != 2, wchan="hrtimer_nanosleep") for rank in range(4)]
    assert verdict(*ranks).text == (
        "rank 2 (node1) waits in the kernel's hrtimer_nanosleep; the 3 others run in the program"
    )


def test_rank_that_hangs_in_the_kernel_is_named_with_what_it_waits_for() -> None:
    stuck = process(1, LOAD, state="D", wchan="rpc_wait_bit_killable")
    assert verdict(process(0, ALL_REDUCE), stuck, process(2, ALL_REDUCE), process(3, ALL_REDUCE))[
        0
    ] == (
        "rank 1 (node0) waits in load (train.py:88, in dataloader.py), which hangs in the kernel's"
        " rpc_wait_bit_killable; the 3 others wait in all_reduce (train.py:30)"
    )


def test_processes_without_ranks_are_named_by_their_nodes() -> None:
    only = process(None, LOAD, size=None)
    assert judge_hang([Seen("node0", only)], {}, []) == HangVerdict(
        "node0 waits in load (train.py:88, in dataloader.py)", "node0"
    )
    assert judge_hang([], {}, ["node0"]).text == (
        "no process of the job was found; no evidence from node0"
    )


def test_many_ranks_are_counted() -> None:
    ranks = [process(rank, LOAD if rank < 6 else ALL_REDUCE, size=16) for rank in range(16)]
    assert judge_hang([Seen("node0", each) for each in ranks], {}, []).text == (
        "rank 0 (node0), rank 1 (node0), rank 2 (node0) and 3 more wait in load (train.py:88, in"
        " dataloader.py); the 10 others wait in all_reduce (train.py:30)"
    )
