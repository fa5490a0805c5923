"""Metrics of a run on two machines: live, for Prometheus, kept at its end, and nothing left."""

import asyncio
import shlex
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from config.errors import NodeError
from engine.analysis.metrics.live import LiveRun, live_runs
from engine.analysis.metrics.summary import summaries
from engine.record.metrics_record import fetch_record, recorded_samples
from nodes.inventory import Inventory
from tests.engine.agent.metrics.test_openmetrics import families
from tests.engine.machines import assert_nothing_left, execute, job, on, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

NVIDIA_SMI = """#!/bin/bash
test "$1" = nvlink && exit 3
while :; do
  printf '0, 97, 65012, 81559, 640.12, 55, 0, 0\\n1, 0, 0, 81559, 70.5, 31, 0, 0\\n'
  sleep 5
done
"""
"""What the tool prints. systemd's PATH has /usr/local/bin before /usr/bin, where the lab's is."""
BURN = "for i in {1..200}; do timeout 0.03 sh -c 'while :; do :; done'; sleep 0.07; done; true"


def read_from(address: str) -> str:
    """The command that reads the endpoint; the machines have no curl."""
    url = f"http://{address}:9713/metrics"
    call = f'import urllib.request as u; print(u.urlopen("{url}").read().decode(), end="")'
    return shlex.join(["python3", "-c", call])


def test_a_run_is_seen_and_its_metrics_are_kept(inventory: Inventory, tmp_path: Path) -> None:
    smi = "/usr/local/bin/nvidia-smi"
    for rank in (0, 1):
        on(inventory, rank, f"cat > {smi} && chmod +x {smi}", NVIDIA_SMI)
    plan = job(inventory, BURN)
    running = threading.Thread(target=execute, args=(inventory, plan, tmp_path))
    running.start()
    seen: list[LiveRun] = []

    def is_known() -> bool:
        with suppress(NodeError):  # a busy machine may answer late: asked again
            seen[:] = asyncio.run(live_runs(inventory, plan.run_id))
        return bool(seen) and all(one.gpus and one.job_cpu is not None for one in seen[0].usages)

    try:
        wait_for(is_known, 60)
        text = on(inventory, 0, read_from("127.0.0.1"))
        outside = on(inventory, 1, read_from(inventory.nodes[0].private_ip))
    finally:
        running.join()
        for rank in (0, 1):
            on(inventory, rank, f"rm {smi}")
    (run,) = seen
    assert [run.nodes[one.rank] for one in run.usages] == ["node0", "node1"]
    for one in run.usages:
        assert one.job_cpu is not None
        assert 0.02 < one.job_cpu < 1.5  # the loop of this node, and not that of the other
        assert [(gpu.percent, gpu.watts) for gpu in one.gpus] == [(97, 640.12), (0, 70.5)]
        assert one.memory_bytes
    assert len(families(text)["gpuctl_job_cpu_seconds"]) == 2
    assert len(families(text)["gpuctl_gpu_power_watts"]) == 4
    assert outside == ""
    assert asyncio.run(live_runs(inventory)) == ()
    assert_nothing_left(inventory)
    assert on(inventory, 0, "ls /run/gpuctl/*.samples 2> /dev/null") == ""
    asyncio.run(fetch_record(inventory, plan.run_id, tmp_path))
    for node in summaries(recorded_samples(tmp_path, plan.run_id)):
        assert node.samples >= 3
        assert node.seconds >= 8
        assert node.job_cpu
