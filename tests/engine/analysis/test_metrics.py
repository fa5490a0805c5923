"""What follows from samples: usage, summaries, curves, idle GPUs' cost; and the client's copy."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from config.errors import NodeError, RunError
from engine.analysis.metrics.live import live_runs, parse_live
from engine.analysis.metrics.summary import CurvePoint, course, idle_seconds, increase, summaries
from engine.analysis.metrics.usage import IdleCost, idle_cost, usage
from engine.record.journal_copy import samples_path
from engine.record.metrics_record import Sample, fetch_record, parse_samples, recorded_samples
from tests.engine.conftest import make_inventory
from tests.engine.session.test_session import LocalConnections, connections  # noqa: F401  a fixture

GIB = 1 << 30


def gpu(number: int, percent: float | None, **other: Any) -> list[Any]:
    known = {
        "memory": 1024, "total": 2048, "watts": 300, "celsius": 50, "corrected": 0,
        "uncorrected": 0, "sent": None, "received": None, **other,
    }  # fmt: skip
    return [number, percent, *known.values()]


def sample(time: float, rank: int = 0, **fields: Any) -> Sample:
    return Sample.model_validate({"time": time, "rank": rank, **fields})


BEFORE = sample(
    100, cpu_s=10, cores=8, memory=(1, 10), disk=(0, 1000), network=(5, 50), rdma=(0,) * 6,
    job=(1.0, 5), gpus=[gpu(0, 50, sent=0, received=1000), gpu(1, 0)],
)  # fmt: skip
LAST = sample(
    110, cpu_s=30, cores=8, memory=(2, 10), space=(3, 30), disk=(500, 3000), network=(5, 1050),
    rdma=(100, 200, 0, 70, 0, 0), job=(6.0, 7),
    gpus=[gpu(0, 90, sent=5000, received=3000), gpu(1, 0)], sources=["nvidia-smi"],
)  # fmt: skip


def test_usage_is_computed_from_two_samples() -> None:
    used = usage(BEFORE, LAST, {1: 50.0}, 112.0)
    assert used.model_dump(exclude={"gpus"}) == {
        "rank": 0, "age_s": 2, "seconds": 10, "cores": 8, "cpu": 2, "memory_bytes": 2,
        "memory_total_bytes": 10, "disk_used_bytes": 3, "disk_total_bytes": 30,
        "disk_read_bytes_s": 50, "disk_written_bytes_s": 200, "network_received_bytes_s": 0,
        "network_sent_bytes_s": 100, "rdma_received_bytes_s": 10, "rdma_sent_bytes_s": 20,
        "rdma_resent_bytes_s": 7, "job_cpu": 0.5, "job_memory_bytes": 7,
        "gpu_sources": ("nvidia-smi",),
    }  # fmt: skip
    first, second = used.gpus
    assert (first.percent, first.memory_bytes, first.idle_s) == (90, GIB, 0)
    assert (first.nvlink_sent_bytes_s, first.nvlink_received_bytes_s) == (500, 200)
    assert (second.percent, second.nvlink_sent_bytes_s, second.idle_s) == (0, None, 62)


def test_a_first_sample_has_no_rates_and_a_reboot_none() -> None:
    alone = usage(None, LAST, {}, 112.0)
    assert (alone.cpu, alone.disk_read_bytes_s, alone.memory_bytes) == (None, None, 2)
    again = usage(LAST, BEFORE.model_copy(update={"time": 120.0}), {}, 120.0)
    assert (again.cpu, again.network_received_bytes_s, again.network_sent_bytes_s) == (
        None,
        0,
        None,
    )


def test_torn_lines_and_rows_of_another_version_are_left_out() -> None:
    lines = ['{"time": 1, "rank": 0, "gpus": [[0, 5]]}', '{"time": 2, "ra', '{"kind": "x"}', ""]
    (only,) = parse_samples(lines)
    assert (only.time, list(only.readings)) == (1, [])


def test_a_summary_has_means_peaks_and_totals() -> None:
    end = sample(
        160, cpu_s=5, cores=8, memory=(1, 10), disk=(600, 3000), network=(0, 0), job=(7.0, 1),
        gpus=[gpu(0, 10, memory=2000, celsius=71, uncorrected=2), gpu(1, 0, watts=None)],
    )  # fmt: skip
    node, other = summaries([LAST, sample(7, rank=1), BEFORE, end])  # in no order
    assert node.model_dump(exclude={"gpus"}) == {
        "rank": 0, "samples": 3, "seconds": 60, "cores": 8, "cpu": 0.33, "memory_peak_bytes": 2,
        "memory_total_bytes": 10, "disk_bytes": 2600, "network_bytes": 1000, "rdma_bytes": 300,
        "rdma_resent_bytes": 70, "job_cpu": 0.1, "job_memory_peak_bytes": 7,
    }  # fmt: skip
    first, second = node.gpus
    assert first.model_dump() == {
        "gpu": 0, "percent": 50, "memory_peak_bytes": 2000 << 20, "memory_total_bytes": 2 * GIB,
        "watts": 300, "celsius_peak": 71, "ecc_corrected": 0, "ecc_uncorrected": 2,
        "nvlink_bytes": 7000, "idle_s": 0,
    }  # fmt: skip
    assert (second.percent, second.watts, second.nvlink_bytes) == (0, 300, None)
    assert (other.samples, other.cpu, other.gpus) == (1, None, ())
    assert summaries([]) == ()


def test_a_counter_that_begins_anew_is_not_negative() -> None:
    assert increase([5, 10, 2, None, 4]) == 7
    assert increase([5, None]) is None


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        ([], 0),
        ([(at, 0) for at in range(0, 660, 60)], 600),
        ([(at, 0) for at in range(0, 600, 60)], 0),  # less than 10 minutes
        ([(0, 0), (60, 0), (600, 0), (1200, 0)], 0),  # no samples meanwhile
        ([*((at, 1) for at in range(0, 901, 60)), (960, 2), (1020, 0)], 900),
        ([*((at, 0) for at in range(0, 901, 60)), (960, None)], 900),
        ([(at, 50) for at in range(0, 1200, 60)], 0),
    ],
)
def test_idle_time_is_that_of_long_stretches(seen: list[Any], seconds: float) -> None:
    assert idle_seconds(seen) == seconds


def test_idle_gpus_cost_their_part_of_the_node() -> None:
    assert idle_cost("node1", [(0, 3600), (1, 0), (2, 1800)], 8, 80.0) == IdleCost(
        node="node1", gpus=(0, 2), seconds=3600, cost_usd=15.0
    )
    unknown = idle_cost("node1", [(0, 3600)], 8, None)
    assert unknown is not None
    assert unknown.cost_usd is None
    assert idle_cost("node1", [(0, 0)], 8, 80.0) is None


def test_the_course_has_the_spread_over_nodes() -> None:
    samples = [
        sample(at, rank, cpu_s=at * (rank + 1), memory=(GIB * (rank + 1), 9 * GIB))
        for rank in (1, 0)
        for at in range(100, 3101, 5)
    ]
    curves = {one.title: one for one in course(samples).curves}
    assert list(curves) == ["Processors in use", "Memory in use"]
    points = curves["Processors in use"].points
    assert len(points) == 200 + 1
    assert points[1] == CurvePoint(at=15, lowest=1, mean=1.5, highest=2)
    assert curves["Memory in use"].points[0] == CurvePoint(at=0, lowest=1, mean=1.5, highest=2)
    assert curves["Memory in use"].unit == "GiB"
    assert course([]).curves == ()


ANSWER = {
    "run_id": "job-000001", "name": "job", "cluster": "demo", "nodes": ["node2", "node3"],
    "samples": {"1": [{"rank": 1, "time": 995}, {"rank": 1, "time": 1000, "gpus": [gpu(4, 0)]}]},
    "idle": {"1": {"4": 300}}, "clock": 900,
}  # fmt: skip


def test_the_heads_answer_has_ages_by_the_runs_clock() -> None:
    (run,) = parse_live(f'103.5\n{json.dumps(ANSWER)}\n{{"run_id": "torn\n')
    (node,) = run.usages
    assert (run.run_id, run.nodes[node.rank], node.age_s, node.seconds) == (
        "job-000001",
        "node3",
        3.5,
        5,
    )
    assert [(one.gpu, one.idle_s) for one in node.gpus] == [(4, 704)]
    assert parse_live("103.5\n") == ()


def test_the_head_is_asked_for_all_runs_or_for_one(
    connections: LocalConnections,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path))
    for name in ("a-000001", "b-000002"):
        (tmp_path / f"{name}.samples").write_text(json.dumps({**ANSWER, "run_id": name}) + "\n")
    there = make_inventory(2)
    assert [run.run_id for run in asyncio.run(live_runs(there))] == ["a-000001", "b-000002"]
    assert [run.run_id for run in asyncio.run(live_runs(there, "b-000002"))] == ["b-000002"]
    assert asyncio.run(live_runs(there, "c-000003")) == ()
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "nowhere"))
    assert asyncio.run(live_runs(there)) == ()


def test_a_record_in_pieces_comes_back_whole(
    connections: LocalConnections,  # noqa: F811
    tmp_path: Path,
) -> None:
    head = connections.run_folder("job-000001")
    head.mkdir(parents=True)
    lines = [f'{{"rank":0,"time":{at}}}\n' for at in range(6)]
    (head / "metrics.jsonl").write_text("".join(lines[:2]))
    with gzip.open(head / "metrics-000000000000034.jsonl.gz", "wt") as packed:
        packed.write("".join(lines[2:4]))
    (head / "metrics-000000000000068.jsonl").write_text("".join(lines[4:]))
    (head / "metrics-000000000000034.jsonl.gz.7.tmp").write_text("left by a killed writer")
    path = asyncio.run(fetch_record(make_inventory(1), "job-000001", tmp_path))
    assert path == samples_path(tmp_path, "job-000001") == tmp_path / "job-000001/metrics.jsonl.gz"
    assert [one.time for one in recorded_samples(tmp_path, "job-000001")] == list(range(6))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert asyncio.run(fetch_record(make_inventory(1), "other-000001", tmp_path)) is None
    assert list(recorded_samples(tmp_path, "other-000001")) == []


def test_a_copy_that_breaks_off_is_none(
    connections: LocalConnections,  # noqa: F811
    tmp_path: Path,
) -> None:
    head = connections.run_folder("job-000001")
    head.mkdir(parents=True)
    (head / "metrics.jsonl").write_text('{"rank":0,"time":1}\n' * 3)
    connections.cut_after = 1
    with pytest.raises(NodeError, match="node0: the connection was lost"):
        asyncio.run(fetch_record(make_inventory(1), "job-000001", tmp_path))
    assert list((tmp_path / "job-000001").iterdir()) == []


def test_a_damaged_copy_is_named(tmp_path: Path) -> None:
    path = samples_path(tmp_path, "job-000001")
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b'{"rank":0,"time":1}\n' * 900)[:-9])
    with pytest.raises(RunError) as refused:
        list(recorded_samples(tmp_path, "job-000001"))
    assert str(refused.value) == (
        f"{path} is damaged: Compressed file ended before the end-of-stream marker was reached;"
        " remove the file"
    )
