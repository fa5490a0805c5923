"""A bisect of four machines, one of which the lab slows down."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fleet")
    file = cluster_file(folder, "fleet", nodes=4, instance_type="c6i.large")
    gpuctl("--lab", "up", str(file), "--yes")
    yield "fleet"
    gpuctl("lab", "fault", "clear")
    gpuctl("--lab", "down", "fleet", "--yes")


def test_the_slow_machine_is_named_within_the_announced_runs(gpuctl: Gpuctl, cluster: str) -> None:
    refused = gpuctl("--lab", "bisect", cluster, code=2)
    assert refused.startswith("Bisect of fleet, 4 nodes: 3 runs, about ")
    assert "there is no terminal to ask on: Measure cluster fleet?" in refused

    said = gpuctl.json("lab", "fault", "set", "slow-network", "fleet-node1", "10mbit")
    assert said["slow-network"][1:] == ["10mbit"]
    limits = ("--lab", "exec", cluster, "--", "tc qdisc show dev host0 | grep -c tbf; true")
    assert gpuctl(*limits) == "--- node[0,2-3]\n0\n--- node1\n1\n"

    output = gpuctl("--lab", "bisect", cluster, "--yes", code=1)
    verdict = re.findall("^node.* median of .*$", output, re.MULTILINE)[0]
    assert re.fullmatch(
        r"node1: 9\d % below the median of 4 as sender and receiver"
        r" \([\d.]+ of [\d.]+ GB/s, [\d.]+ of [\d.]+ GB/s\)",
        verdict,
    )
    assert re.findall("^-- run (. of .)", output, re.MULTILINE) == ["1 of 3", "2 of 3", "3 of 3"]
    (path,) = re.findall(r"^All \d+ measurements: (.*)$", output, re.MULTILINE)
    kept = json.loads(Path(path).read_text())
    assert (kept["planned_runs"], len(kept["runs"]), kept["verdict"]) == (3, 3, verdict)
    assert kept["nodes"][kept["suspects"][0]["nodes"][0]] == "node1"
    tables = gpuctl.json("--lab", "results", kept["runs"][0])["tables"]
    assert [table["facts"]["collective"] for table in tables] == ["broadcast"] * 8

    gpuctl("lab", "fault", "clear", "slow-network")
    assert gpuctl(*limits) == "--- node[0-3]\n0\n"
