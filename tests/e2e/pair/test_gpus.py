"""The GPUs of the instance type, as `gpuctl top`, `gpuctl run` and the report show them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.catalogue.instance_types import price_usd_h
from tests.e2e.conftest import Gpuctl, read_until, run_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

GPU = {
    "percent": 0,
    "memory_bytes": 0,
    "memory_total_bytes": 40960 << 20,
    "watts": 68.25,
    "celsius": 31,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "nvlink_sent_bytes_s": 0,
    "nvlink_received_bytes_s": 0,
}
"""What the stand-in of nvidia-smi shows of a GPU of p4d.24xlarge, which has no work."""


@contextmanager
def gpus_are_idle_after(gpuctl: Gpuctl, cluster: str, seconds: float) -> Iterator[None]:
    """Runs that begin in the block count GPUs as idle after this time, and not after 10 minutes."""
    file = "/var/lib/gpuctl/agent-*/engine/agent/metrics/samples.py"
    limit = f"sed -i 's/^IDLE_S = .*/IDLE_S = {{}}/' {file}"
    on_all = ("--lab", "exec", cluster, "--")
    gpuctl(*on_all, limit.format(seconds))
    try:
        yield
    finally:
        gpuctl(*on_all, limit.format(600.0))


def test_all_gpus_of_a_run_are_shown_and_idle_ones_have_a_price(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    first = run_file(tmp_path, "first", ["true"])
    gpuctl("--lab", "run", str(first), "--cluster", cluster)  # the nodes have the agent now
    file = run_file(tmp_path, "idles", ["until test -e /tmp/seen; do sleep 0.2; done"])
    end = ("--lab", "exec", cluster, "--", "touch /tmp/seen")
    with (
        gpus_are_idle_after(gpuctl, cluster, 6.0),
        gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process,
    ):
        warned = [read_until(process, "-- warning: node")[-1] for _ in range(2)]
        (top,) = gpuctl.json("--lab", "top", cluster)
        table = gpuctl("--lab", "top", cluster, "--gpus")
        gpuctl(*end)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert "warning: metrics" not in rest, rest
    text = r"node[01]: GPUs 0-7 have been idle for \d+s, which cost about \$0\.\d\d"
    assert all(re.fullmatch(f"-- warning: {text}\n", line) for line in warned), warned
    (run,) = top["runs"]
    assert [node["node"] for node in run["nodes"]] == ["node0", "node1"]
    for node, idle in zip(run["nodes"], top["idle"], strict=True):
        times = [gpu.pop("idle_s") for gpu in node["gpus"]]
        assert node["gpus"] == [{"gpu": number, **GPU} for number in range(8)]
        assert node["gpu_sources"] == ["nvidia-smi", "nvidia-smi nvlink"]
        assert min(times) >= 6
        price = price_usd_h("p4d.24xlarge")
        assert price is not None
        assert idle == {
            "node": node["node"],
            "gpus": list(range(8)),
            "seconds": max(times),
            "cost_usd": round(price * sum(times) / 3600 / 8, 2),
        }
    assert len(re.findall(f"! {text}\n", table)) == 2
    assert len(re.findall(r"(?m)^node[01] +\d +0 % .* 68 W .* 31 °C .* 0 .* 0 / 0$", table)) == 16
    assert "Source: nvidia-smi, nvidia-smi nvlink\n" in table

    over = gpuctl.json("--lab", "top", run["run_id"])
    assert [len(node["gpus"]) for node in over["nodes"]] == [8, 8]
    page = tmp_path / "report.html"
    gpuctl("--lab", "report", run["run_id"], "-o", str(page))
    row = "<td>0 %</td><td>0 KiB</td><td>546 W</td><td>31 °C</td><td>0</td>"
    assert page.read_text().count(row) == 2  # used, memory, power, temperature, ECC errors
