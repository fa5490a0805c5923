"""What gpuctl makes of the outputs of a real GPU (tests/engine/gpu_outputs/README.md)."""

import json
from pathlib import Path

import pytest

from config.xid import gpu_errors
from engine.agent.judge.output_reader import OutputReader
from engine.agent.judge.tables import TableReader, read_json
from engine.agent.metrics.gpu_counters import gpu_row, nvlink_bytes
from engine.agent.node.nccl_json_files import collect
from engine.contract.head_events import NetworkSeen
from engine.contract.plan import NetworkPlan
from engine.contract.verdict import Verdict, exit_reason
from engine.contract.worker_events import NodeExamined, Output, RankStarted
from provision.health.facts import Gpu, RemappedRows, read
from tests.engine.bare_plans import bare_node, bare_plan

OUTPUTS = Path(__file__).parents[2].joinpath("gpu_outputs")
TORCH, TESTS = OUTPUTS / "torch", OUTPUTS / "nccl_tests"


def lines_and_code(path: Path) -> tuple[list[str], int]:
    *lines, last = path.read_text().splitlines()
    return lines, int(last.split()[1])


def reason(path: Path) -> str:
    """What the verdict says of a run on node0 with this output."""
    lines, code = lines_and_code(path)
    reader = OutputReader(bare_plan([bare_node(0), bare_node(1)]))
    for process in (0, 1):
        reader.read(RankStarted(0, process, 2))
    for line in lines:
        reader.read(Output(0, "stderr", line))
    reader.read(NodeExamined(0, code, is_own_end=True, facts=()))
    failed = Verdict("failed", code, 0, exit_reason("node0", code), True, "exit-code")
    return reader.end(failed)[1].reason


@pytest.mark.parametrize(
    ("scene", "why"),
    [
        ("raises", "exited with 1: rank 1 raised ValueError: the sample 4711 is broken"),
        (
            "oom",
            "exited with 1: rank 1 raised torch.OutOfMemoryError: CUDA out of memory. Tried to"
            " allocate 1024.00 GiB.",
        ),
        ("killed", "exited with 1: torchrun says that rank 1 was killed by SIGKILL first"),
        ("segv", "exited with 1: torchrun says that rank 1 was killed by SIGSEGV first"),
        ("exits", "exited with 1: torchrun says that rank 1 exited with 3 first"),
        (
            "assert",
            "exited with 1: CUDA failed within NCCL (device-side assert triggered): ",
        ),
        (
            "illegal",
            "exited with 1: CUDA failed within NCCL (an illegal memory access was encountered): ",
        ),
        (
            "stuck",
            "exited with 124: NCCL's ALLREDUCE number 11 timed out after 20 s: rank 1 (node0) did"
            " not arrive",
        ),
        (
            "stopped",
            "killed by SIGKILL (137): NCCL's ALLREDUCE number 11 timed out after 20 s: rank 0"
            " (node0) waited, rank 1 (node0) reported nothing",
        ),
        (
            "mismatch",
            "exited with 124: NCCL's ALLREDUCE number 11 timed out after 20 s: rank 0 (node0)"
            " waited; the ranks exchanged different sizes: they did not call the same operation: ",
        ),
        (
            "mismatch-detail",
            "exited with 1: rank 0 raised RuntimeError: Detected mismatch between collectives on"
            " ranks. Rank 0 is running collective: ",
        ),
        ("duplicate", "exited with 1: ranks 1 and 0 use the same GPU: "),
        (
            "no-interface",
            "exited with 1: NCCL found no network interface; does NCCL_SOCKET_IFNAME name one of"
            " this node?: ",
        ),
        (
            "net-ib",
            "exited with 1: NCCL could initialize no network; does NCCL_NET name one that exists?",
        ),
        (
            "bad-env",
            "exited with 1: torchrun says that rank 0 exited with 1 first; NCCL's last error:"
            ' "Unrecognized element token "Nonsense" when parsing "Nonsense""',
        ),
    ],
)
def test_reason_names_what_went_wrong_with_torch(scene: str, why: str) -> None:
    assert reason(TORCH / f"{scene}.txt").startswith(f"node0: {why}")


def test_reason_is_the_same_when_torchrun_tags_the_lines_of_ranks(tmp_path: Path) -> None:
    teed = tmp_path / "teed.txt"
    text = (TORCH / "raises.txt").read_text()
    teed.write_text(text.replace("[rank1]: ", "[rank1]:[rank1]: "))
    assert reason(teed) == reason(TORCH / "raises.txt")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("killed", "mpirun says that rank 1 (host) was killed by SIGKILL first"),
        (
            "two-gpus",
            "nccl-tests says: Invalid number of GPUs: 2 requested but only 1 were found.",
        ),
        ("one-without-gpu", "node1: Test CUDA failure util.cu:674 'no CUDA-capable device is"),
        ("one-without-interface", "NCCL found no network interface; does NCCL_SOCKET_IFNAME name"),
        ("two-versions", "ranks 0 and 1 have different versions of NCCL (22809 and 22803)"),
    ],
)
def test_reason_names_what_went_wrong_with_nccl_tests(output: str, why: str) -> None:
    assert why in reason(TESTS / "two_ranks" / f"{output}.txt")


@pytest.mark.parametrize("scene", ["healthy", "net-plugin"])
def test_sockets_instead_of_efa_are_a_fault(scene: str) -> None:
    lines, _ = lines_and_code(TORCH / f"{scene}.txt")
    plan = bare_plan([bare_node(0)], NetworkPlan(preset="efa", promises="efa"))
    reader = OutputReader(plan)
    events = [event for line in lines for event in reader.read(Output(0, "stdout", line))]
    seen = [event for event in events if isinstance(event, NetworkSeen)]
    assert [(event.level, event.text.partition(",")[0]) for event in seen] == [
        ("fault", "node0 uses sockets instead of EFA: `Using network Socket`")
    ]


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(TESTS.glob("*/*.txt"))
        if lines_and_code(path)[1] == 0 and path.stem not in ("huge", "all-types")
    ],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_every_row_of_a_table_is_read(path: Path) -> None:
    lines, _ = lines_and_code(path)
    printed = [line.split()[0] for line in lines if line[:14].strip().isdecimal()]
    reader = TableReader()
    for line in lines:
        reader.feed(0, "stdout", line)
    (table,) = reader.tables
    assert [str(row.size) for row in table.rows] == printed
    assert (table.nccl_tests, table.nccl, table.lost) == ("2.19.6", "2.28.9", 0)
    assert table.out_of_bounds == 0
    assert {rank.name for rank in table.ranks} == {"NVIDIA H200"}


def test_size_that_exceeds_the_gpus_memory_is_reduced_by_nccl_tests() -> None:
    lines, _ = lines_and_code(TESTS / "one_rank" / "huge.txt")
    reader = TableReader()
    for line in lines:
        reader.feed(0, "stdout", line)
    (table,) = reader.tables
    assert [row.size for row in table.rows] == [48247057064]
    assert table.ended_at is None


@pytest.mark.parametrize("ranks", ["one_rank", "two_ranks"])
def test_document_of_nccl_tests_has_the_rows_of_its_text(ranks: str, tmp_path: Path) -> None:
    written = (TESTS / ranks / "all_reduce.json").read_text()
    (tmp_path / "nccl-tests-1-all_reduce.json").write_text(written)
    ((case, document),) = collect(tmp_path)
    assert "hf_planted" in written and "hf_planted" not in json.dumps(document)
    table = read_json(document, 0, case)
    lines, _ = lines_and_code(TESTS / ranks / "all_reduce-json.txt")
    reader = TableReader()
    for line in lines:
        reader.feed(0, "stdout", line)
    (text,) = reader.tables
    assert [row.size for row in table.rows] == [row.size for row in text.rows]
    assert (table.ranks, table.nccl) == (text.ranks, text.nccl)


def test_health_reads_a_healthy_gpu() -> None:
    facts = read((OUTPUTS / "nvidia_smi" / "facts-full.txt").read_text())
    assert facts.gpus == (
        Gpu(
            index=0,
            name="NVIDIA H200",
            bus="00000000:00:06.0",
            driver="580.159.04",
            is_persistent=True,
            ecc=0,
        ),
    )
    assert facts.smi_error == "" and facts.slowdowns == {}
    rows = RemappedRows("00000000:00:06.0", uncorrectable=0, is_pending=False, has_failed=False)
    assert facts.remapped == (rows,)
    assert (facts.nvlinks, facts.kernel_log, facts.ended) == ({}, (), ())
    assert facts.versions["CUDA"] == "13.0" and facts.versions["Open MPI"] == "4.1.6"


def test_health_reads_the_errors_of_a_gpu() -> None:
    facts = read((OUTPUTS / "nvidia_smi" / "facts-after.txt").read_text())
    assert facts.kernel_log is not None
    assert [error.label for error in gpu_errors(facts.kernel_log)] == ["Xid 43", "Xid 31"]


def test_metrics_read_the_lines_of_nvidia_smi() -> None:
    text = (OUTPUTS / "nvidia_smi" / "counters.txt").read_text()
    assert [gpu_row(line) for line in text.splitlines()] == [
        (0, [0, 0, 143771, 81.44, 38, 0, 0]),
        (0, [0, 0, 143771, 81.5, 38, 0, 0]),
        (0, [0, 4, 143771, 81.44, 38, 0, 0]),
    ]
    assert nvlink_bytes("") == {}  # as on a machine with one GPU


HUGE = "9" * 5000  # more digits than int() reads


@pytest.mark.parametrize(
    "lines",
    [
        [f"[rank{HUGE}]: Traceback (most recent call last):", f"[rank{HUGE}]: ValueError: x"],
        ["Root Cause (first observed failure):", f"  rank      : {HUGE}", f"  exitcode  : {HUGE}"],
        [f"mpirun noticed that process rank {HUGE} with PID 1 on node a exited on signal {HUGE}"],
        ["The first process to do so was:", f"  Process name: [[1,1],{HUGE}]", "  Exit code: 1"],
        [
            f"[Rank {HUGE}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={HUGE},"
            f" OpType=ALLREDUCE, Timeout(ms)={HUGE}) ran for 1 milliseconds before timing out."
        ],
        [f"[rank{HUGE}]:[PG 0 Rank {HUGE}] Last enqueued NCCL work: {HUGE}, last completed"],
        [f"To our best knowledge, ranks [{HUGE}, , 1 2] are the lagging ranks"],
        [
            f"host:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes {HUGE} localRanks 1 localRank"
            " 0 MNNVL 0"
        ],
    ],
    ids=[
        "traceback",
        "torchrun",
        "signal",
        "exit code",
        "timeout",
        "last work",
        "lagging",
        "nodes",
    ],
)
def test_number_that_no_rank_has_is_left_out(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    path.write_text("\n".join([*lines, "exit 1"]))
    assert reason(path) == "node0: exited with 1"
