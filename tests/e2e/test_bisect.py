"""nccl-tests on four machines: a sweep with gates, a comparison, a bisect, and their report."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.record.result import Table
from tests.cli.chromium import open_page
from tests.cli.test_report import figures
from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


@pytest.fixture(scope="module")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fleet")
    file = cluster_file(folder, "fleet", nodes=4, instance_type="c6i.large", network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    yield "fleet"
    gpuctl("lab", "fault", "clear")
    gpuctl("--lab", "down", "fleet", "--yes")


def test_a_fleet_is_measured_from_the_sweep_to_the_report(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    tables = a_sweep_has_a_table_for_each_case_and_a_gate_that_fails(gpuctl, cluster, tmp_path)
    limits = ("--lab", "exec", cluster, "--", "tc qdisc show dev host0 | grep -c tbf; true")
    said = gpuctl.json("lab", "fault", "set", "slow-network", "fleet-node1", "10mbit")
    assert said["slow-network"][1:] == ["10mbit"]
    assert gpuctl(*limits) == "--- node[0,2-3]\n0\n--- node1\n1\n"
    a_scope_starts_ranks_on_its_nodes_alone(gpuctl, cluster, tmp_path)
    the_slow_network_is_slower_beyond_the_noise(gpuctl)
    bisect, of_pairs = the_slow_machine_is_named_within_the_announced_runs(gpuctl, cluster)
    tables += gpuctl.json("--lab", "results", "scopes")["tables"] + of_pairs
    the_report_has_all_of_it(gpuctl, bisect, tables, tmp_path)
    gpuctl("lab", "fault", "clear", "slow-network")
    assert gpuctl(*limits) == "--- node[0-3]\n0\n"


def nccl_tests(folder: Path, name: str, **fields: Any) -> str:
    """A run file of nccl-tests on two of the four nodes."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"type": "nccl-tests", "name": name, "nodes": 2, **fields}))
    return str(path)


def a_sweep_has_a_table_for_each_case_and_a_gate_that_fails(
    gpuctl: Gpuctl, cluster: str, folder: Path
) -> list[Any]:
    """Return the tables."""
    file = nccl_tests(
        folder,
        "sweep",
        procs_per_node=1,
        collectives=["all_reduce", "all_gather"],
        sizes=["64K", "256K", "1M"],
        sweep={"NCCL_ALGO": ["Ring", "Tree"]},
        expect={"all_gather": {"busbw": ">= 100000", "at": "1M"}},
    )
    output = gpuctl("--lab", "run", file, "--cluster", cluster, code=1)
    assert re.findall(r"^-- (1?\d of 12), all_", output, re.MULTILINE) == [
        f"{number} of 12" for number in range(1, 13)
    ]
    left = r"^-- 2 of 12, all_reduce 256 KiB, NCCL_ALGO=Ring, about \d+ (?:s|min) left$"
    assert re.search(left, output, re.MULTILINE)
    missed = (
        r"gate missed: all_gather 1 MiB, NCCL_ALGO=Ring: busbw [\d.]+ GB/s, expected >= 100000 GB/s"
        r" \(run file\); CPU stand-in: says nothing of a GPU"
    )
    assert re.search(rf"exit code 1: {missed} \(and 1 more\)$", output, re.MULTILINE)
    tables: list[Any] = gpuctl.json("--lab", "results", "sweep")["tables"]
    measured = [
        (
            one["facts"]["case"]["collective"],
            one["rows"][0]["size"],
            one["facts"]["case"]["variables"],
        )
        for one in tables
    ]
    assert measured == [
        (collective, size << 10, {"NCCL_ALGO": algorithm})
        for collective in ("all_reduce", "all_gather")
        for algorithm in ("Ring", "Tree")
        for size in (64, 256, 1024)
    ]
    judged = [number for number, one in enumerate(tables, 1) if one["facts"]["gates"]]
    assert judged == [9, 12]
    shown = gpuctl("--lab", "results", "sweep")
    assert re.search(r"^Case 9: all_gather 1 MiB, NCCL_ALGO=Ring$", shown, re.MULTILINE)
    assert re.search(rf"^G{missed[1:]}$", shown, re.MULTILINE)
    return tables


def a_scope_starts_ranks_on_its_nodes_alone(gpuctl: Gpuctl, cluster: str, folder: Path) -> None:
    file = nccl_tests(
        folder,
        "scopes",
        procs_per_node=2,
        sizes=["64K"],
        scopes=["intra", "inter"],
        sweep={"NCCL_ALGO": ["Ring"]},
    )
    output = gpuctl("--lab", "run", file, "--cluster", cluster)
    devices = re.findall(r"#\s+Rank\s+(\d+) .* on (\S+) device", output)
    nodes = gpuctl.json("--lab", "status", cluster)[0]["nodes"]
    first, second, *_ = (
        f"ip-{node['private_ip'].replace('.', '-')}" for node in nodes if node["name"] != "bastion"
    )
    alone = [("0", first), ("1", first), ("0", second), ("1", second)]
    assert devices == [*alone, ("0", first), ("1", second)]


def the_slow_network_is_slower_beyond_the_noise(gpuctl: Gpuctl) -> None:
    """Both runs have one test in common: a rank on each of two nodes, 64 KiB, two halves."""
    compared = gpuctl.json("--lab", "results", "--compare", "sweep", "scopes")
    assert [(one["size"], one["half"], one["mark"]) for one in compared["changes"]] == [
        (65536, "out-of-place", "slower"),
        (65536, "in-place", "slower"),
    ]
    assert compared["slower"] == 2


def the_slow_machine_is_named_within_the_announced_runs(
    gpuctl: Gpuctl, cluster: str
) -> tuple[dict[str, Any], list[Any]]:
    """Return what is kept of the bisect, and the tables of its first run."""
    refused = gpuctl("--lab", "bisect", cluster, code=2)
    assert refused.startswith("Bisect of fleet, 4 nodes: 3 runs, about ")
    assert "there is no terminal to ask on: Measure cluster fleet?" in refused
    output = gpuctl("--lab", "bisect", cluster, "--yes", code=1)
    verdict = re.findall("^node.* median of .*$", output, re.MULTILINE)[0]
    assert re.fullmatch(
        r"node1: 9\d % below the median of 4 as sender and receiver"
        r" \([\d.]+ of [\d.]+ GB/s, [\d.]+ of [\d.]+ GB/s\)",
        verdict,
    )
    assert re.findall("^-- run (. of .)", output, re.MULTILINE) == ["1 of 3", "2 of 3", "3 of 3"]
    (path,) = re.findall(r"^All \d+ measurements: (.*)$", output, re.MULTILINE)
    kept: dict[str, Any] = json.loads(Path(path).read_text())
    assert (kept["planned_runs"], len(kept["runs"]), kept["verdict"]) == (3, 3, verdict)
    assert kept["nodes"][kept["suspects"][0]["nodes"][0]] == "node1"
    assert f"Their heat map: gpuctl report {kept['runs'][2]}\n" in output
    tables: list[Any] = gpuctl.json("--lab", "results", kept["runs"][0])["tables"]
    assert [table["facts"]["collective"] for table in tables] == ["broadcast"] * 8
    return kept, tables


def the_report_has_all_of_it(
    gpuctl: Gpuctl, bisect: dict[str, Any], tables: list[Any], folder: Path
) -> None:
    page = folder / "report.html"
    gpuctl("--lab", "report", "sweep", "scopes", bisect["runs"][0], "-o", str(page))
    opened = open_page(page, folder)
    assert opened.complaints == []
    charts = re.findall(r'<div class="chart[ "]', opened.dom)
    assert f'data-charts="{len(charts)}"' in opened.dom
    assert len(re.findall(r'<svg [^>]*class="marks"', opened.dom)) == len(charts)
    kept = [Table.model_validate(table) for table in tables]
    assert opened.tables("figures") == figures(kept)
    for words in (
        "<h1>3 runs of sweep, scopes, bisect</h1>",
        '<span class="verdict failed">✗ failed</span> exit code 1',
        "fault: gate missed: all_gather 1 MiB, NCCL_ALGO=Ring: busbw ",
        f"<strong>{bisect['verdict']}</strong>",
        ">Bisect of fleet: from sender to receiver, GB/s</text>",
        f"in 3 of 3 planned runs: {', '.join(bisect['runs'])}</p>",
        ">all_gather: bus bandwidth</text>",
    ):
        assert words in opened.dom
    assert opened.screenshot.startswith(b"\x89PNG")
