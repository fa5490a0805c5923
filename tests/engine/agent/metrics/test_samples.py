"""Samples on the head: the newest ones, the record, idle GPUs; and samples of real workers."""

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.agent.journal.clock import RunClock
from engine.agent.journal.journal_file import JournalReader
from engine.agent.metrics import samples
from engine.agent.metrics.samples import (
    GAP_S,
    IDLE_S,
    IdleGpus,
    Samples,
    newest_path,
    record_interval,
)
from engine.contract.event import Event
from engine.contract.head_events import GpusIdle
from engine.contract.names import RECORD
from engine.contract.worker_events import NodeNotReady, Sample
from tests.engine.agent.link.test_event_stream import Pipe
from tests.engine.conftest import LocalCluster, make_plan

PLAN = make_plan(nodes=2)


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for /run/gpuctl."""
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    return tmp_path / "memory"


def gpu(number: int, percent: float | None) -> list[float | None]:
    return [number, percent, 10, 80, 300, 50, 0, 0, None, None]


class Head:
    """The samples of a run in a loop, and the events that they made."""

    def __init__(
        self, folder: Path, record: Callable[[Event], None] | None = None, **sizes: int
    ) -> None:
        self.folder = folder / "job-000001"
        self.folder.mkdir()
        self.events: list[Event] = []
        self.samples = Samples(PLAN, self.folder, record or self.events.append, **sizes)
        self.samples.begin(PLAN, RunClock(0.0))

    def recorded(self) -> list[dict[str, Any]]:
        with contextlib.closing(JournalReader(self.folder / RECORD)) as reader:
            return [json.loads(line) for line in reader.read()]


async def ticks(head: Head, seconds: int, step: int = 5, **fields: Any) -> None:
    for at in range(0, seconds + 1, step):
        head.samples.add(0, Sample(fields, time=1000.0 + at))


def test_a_record_becomes_thinner_with_the_runs_age(tmp_path: Path) -> None:
    head = Head(tmp_path)
    asyncio.run(ticks(head, 24 * 3600, cpu_s=1.0))
    times = [one["time"] for one in head.recorded()]
    steps = [round(after - before) for before, after in pairwise(times)]
    assert (steps[0], steps[99], max(steps), steps[-1]) == (5, 5, 60, 60)
    assert len(times) < 24 * 60 + 400
    assert head.recorded()[0] == {"rank": 0, "time": 1000.0, "cpu_s": 1.0}
    assert [record_interval(age) for age in (0, 500, 1000, 6000, 9999)] == [5, 5, 10, 60, 60]
    head.samples.close()


def test_the_last_sample_of_a_node_is_recorded(tmp_path: Path) -> None:
    head = Head(tmp_path)

    async def run() -> None:
        await ticks(head, 3600)
        head.samples.add(0, Sample({}, is_last=True, time=4601.0))

    asyncio.run(run())
    assert head.recorded()[-1] == {"rank": 0, "time": 4601.0}
    head.samples.close()


def test_a_record_has_a_budget(tmp_path: Path) -> None:
    head = Head(tmp_path, budget=2000, piece=4000)
    asyncio.run(ticks(head, 6 * 3600, memory=[1 << 40, 1 << 41]))
    head.samples.close()
    first, *_, last = sorted(path.name for path in head.folder.iterdir())
    assert last == "metrics.jsonl"
    assert int(first.partition("-")[2].partition(".")[0]) > 4000  # the pieces before it are gone
    assert head.recorded()[0]["time"] == 1000.0
    assert head.recorded()[-1]["time"] > 22000


def test_the_newest_two_samples_are_in_memory(tmp_path: Path, memory: Path) -> None:
    head = Head(tmp_path)

    async def run() -> None:
        await ticks(head, 10)
        await asyncio.sleep(samples._WRITE_S)  # as long as the head waits for more of them
        await asyncio.sleep(0)

    asyncio.run(run())
    path = newest_path(head.folder)
    assert (path.name, path.stat().st_mode & 0o777) == ("job-000001.samples", 0o600)
    assert json.loads(path.read_text()) == {
        "run_id": "job-000001",
        "name": "job",
        "cluster": "demo",
        "nodes": ["node0", "node1"],
        "samples": {"0": [{"rank": 0, "time": 1005.0}, {"rank": 0, "time": 1010.0}]},
        "idle": {"0": {}},
        "clock": 0.0,
    }
    head.samples.close()
    assert list(memory.glob("*")) == []


def test_a_full_disk_loses_samples_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    head = Head(tmp_path)
    monkeypatch.setattr(os, "pwrite", refuse)
    asyncio.run(ticks(head, 10))
    monkeypatch.undo()
    asyncio.run(ticks(head, 0))
    assert [one["time"] for one in head.recorded()] == []
    head.samples.close()


def test_gpus_that_stand_idle_are_reported_once(tmp_path: Path) -> None:
    head = Head(tmp_path)

    async def run() -> None:
        await ticks(head, 1200, gpus=[gpu(0, 0), gpu(1, 95), gpu(2, 1), gpu(3, None)])

    asyncio.run(run())
    assert head.events == [GpusIdle(0, (0, 2), 600)]
    head.samples.close()


def test_whoever_reads_of_idle_gpus_finds_them_in_the_newest_samples(tmp_path: Path) -> None:
    seen: list[tuple[Event, Any, float]] = []

    def record(event: Event) -> None:
        newest = json.loads(newest_path(head.folder).read_text())
        seen.append((event, newest["idle"], newest["samples"]["0"][-1]["time"]))

    head = Head(tmp_path, record)
    asyncio.run(ticks(head, 600, step=10, gpus=[gpu(0, 0), gpu(1, 95)]))
    assert seen == [(GpusIdle(0, (0,), 600), {"0": {"0": 1000.0}}, 1600.0)]
    head.samples.close()


def test_work_ends_an_idle_stretch() -> None:
    idle = IdleGpus()
    for at in range(0, 596, 5):
        assert idle.add(0, {"time": float(at), "gpus": [gpu(0, 0)]}) == []
    assert idle.add(0, {"time": 600.0, "gpus": [gpu(0, 0)]}) == [0]
    assert idle.of(0, 600.0) == {0: 0.0}
    assert idle.add(0, {"time": 605.0, "gpus": [gpu(0, 2)]}) == []
    assert idle.of(0, 605.0) == {}
    for at in range(610, 1210, 5):
        assert idle.add(0, {"time": float(at), "gpus": [gpu(0, 0)]}) == []
    assert idle.add(0, {"time": 1210.0, "gpus": [gpu(0, 0)]}) == [0]


def test_time_without_samples_is_not_idle() -> None:
    """Between two attempts of a run nobody expects work."""
    idle = IdleGpus()
    idle.add(0, {"time": 0.0, "gpus": [gpu(0, 0)]})
    idle.add(0, {"time": 0.0 + GAP_S, "gpus": [gpu(0, 0)]})
    assert idle.of(0, IDLE_S) == {0: 0.0}
    assert idle.add(0, {"time": 2 * IDLE_S, "gpus": [gpu(0, 0)]}) == []
    assert idle.of(0, 2 * IDLE_S) == {}
    assert idle.add(0, {"time": 2 * IDLE_S + 1}) == []  # no GPU is known then


def test_an_offered_event_is_dropped_where_output_waits() -> None:
    pipe = Pipe()
    pipe.report.offer(Sample({"cpu_s": 1}))
    for _ in range(1200):
        pipe.report.send(NodeNotReady(0, "y" * 1000))
    pipe.report.offer(Sample({"cpu_s": 2}))
    with os.fdopen(os.dup(pipe._read), "rb") as lines:
        first = json.loads(lines.readline())
        assert (first["counters"], "sequence" in first) == ({"cpu_s": 1}, False)
        for number in range(1, 1201):
            event = json.loads(lines.readline())
            assert (event["kind"], event["sequence"]) == ("node_not_ready", number)
        pipe.report.offer(Sample({"cpu_s": 3}))
        assert json.loads(lines.readline())["counters"] == {"cpu_s": 3}
    pipe.break_off()
    pipe.write.close()


def test_the_nodes_of_a_run_send_samples(cluster: LocalCluster, memory: Path) -> None:
    record = cluster.folder / RECORD
    # A job that ends before its first sample has only the last one.
    sampled = f"""until grep -qs '"rank":'$DSTACK_NODE_RANK {record}; do sleep 0.05; done"""
    assert cluster.execute(make_plan(commands=(sampled,))).status == "done"
    lines = record.read_text().splitlines()
    recorded = [json.loads(line) for line in lines]
    for rank in (0, 1):
        first, *_, last = [one for one in recorded if one["rank"] == rank]
        assert first["cpu_s"] <= last["cpu_s"]
        assert last["memory"][0] < last["memory"][1]
    assert "sample" not in {kind for kind, _ in cluster.kinds()}
    assert list(memory.glob("*")) == []
