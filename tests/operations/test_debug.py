"""Which process a person means by a rank."""

from datetime import UTC, datetime

import pytest

from config.errors import InputError
from engine.record.history import RunRecord
from operations.debug import Examined, RunProcesses, ShownProcess, debug_command
from tests.engine.conftest import make_inventory

RUN = "train-000001"


def examined(*processes: ShownProcess, silent: dict[str, str] | None = None) -> Examined:
    record = RunRecord(
        run_id=RUN,
        name="train",
        cluster="demo",
        nodes=2,
        on_stop="keep",
        status="running",
        exit_code=None,
        first_failed_rank=None,
        reason="",
        started=datetime.now(UTC),
        ended=None,
        cost_usd=None,
    )
    seen = RunProcesses(verdict="", processes=processes, silent=silent or {})
    return Examined(record, make_inventory(2), ("node0", "node1"), seen)


def process(pid: int, node: str, rank: int | None = None) -> ShownProcess:
    return ShownProcess(rank=rank, node=node, pid=pid, command="python3", where="", threads="")


def test_a_rank_is_the_launchers() -> None:
    both = examined(process(7, "node1", 0), process(8, "node0", 1))
    assert [each.pid for each in both.of_rank(1)] == [8]


def test_without_a_launcher_a_rank_is_a_nodes() -> None:
    both = examined(process(7, "node0"), process(8, "node1"), process(9, "node1"))
    assert [each.pid for each in both.of_rank(1)] == [8, 9]


@pytest.mark.parametrize(
    ("given", "rank", "message"),
    [
        (
            examined(process(7, "node0", 0), process(8, "node0", 1), process(9, "node1", 3)),
            2,
            "rank 2 of run train-000001 has no process; those with one are 0-1, 3",
        ),
        (
            examined(process(7, "node0")),
            1,
            "run train-000001 has no process on node1;"
            " `gpuctl logs train-000001` has what it printed",
        ),
        (
            examined(process(7, "node0"), silent={"node1": "node1 cannot be reached"}),
            1,
            "node1 cannot be reached; `gpuctl logs train-000001` has what it printed",
        ),
        (
            examined(process(7, "node0")),
            2,
            "run train-000001 has no rank 2; it has 2 nodes, and no launcher gave it other ranks",
        ),
    ],
)
def test_a_rank_without_a_process(given: Examined, rank: int, message: str) -> None:
    with pytest.raises(InputError) as error:
        given.of_rank(rank)
    assert str(error.value) == message


def test_a_command_is_for_one_process() -> None:
    with pytest.raises(InputError) as error:
        debug_command(examined(process(8, "node1"), process(9, "node1")), 1, "gdb")
    assert str(error.value) == (
        "run train-000001 has 2 processes on node1, and no launcher gave them ranks: 8, 9;"
        " name one by its pid, as in `gpuctl exec -it demo --node node1 -- gdb -p 8`"
    )
