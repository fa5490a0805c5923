"""Jobs that end in other ways than well, on one cluster that stays until the last test."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import what_bills

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = cluster_file(tmp_path_factory.mktemp("jobs"), "jobs")
    gpuctl("--lab", "up", str(file), "--yes")
    yield "jobs"
    if "jobs" in gpuctl("--lab", "status"):
        gpuctl("--lab", "down", "jobs", "--yes")


def units(gpuctl: Gpuctl, cluster: str) -> str:
    """What of any run still lives on the nodes, as soon as systemd has noticed that it ended."""
    count = "systemctl list-units --no-legend 'gpuctl-run-*' | wc -l"
    settled = f'for i in $(seq 50); do [ "$({count})" = 0 ] && break; sleep 0.2; done'
    return gpuctl("--lab", "exec", cluster, "--", f"{settled}; {count}; pgrep -xc sleep; true")


def test_ssh_is_a_shell_on_a_node_through_the_bastion(gpuctl: Gpuctl, cluster: str) -> None:
    (_, node1) = gpuctl.json("--lab", "status", cluster)[0]["nodes"]
    assert node1["private_ip"] in gpuctl("--lab", "ssh", cluster, "node1", "hostname", "-I")
    output = gpuctl("--lab", "ssh", cluster, "node7", code=2)
    assert output == ("gpuctl: error: cluster jobs has no 'node7'; it has bastion, node0, node1\n")


def test_a_dry_run_is_the_plan_and_runs_nothing(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    saved = tmp_path / "inventory.json"
    inventory = gpuctl.state / "clusters" / cluster / "inventory.json"
    saved.write_text(inventory.read_text())
    seed = "stacks/nccl-tests.dstack.yaml"
    before = gpuctl("--lab", "ps")
    there = gpuctl.json("--lab", "run", seed, "--cluster", cluster, "--dry-run")
    # from a saved inventory, without a cluster or a lab
    alone = gpuctl.json("run", seed, "--dry-run", "--inventory", str(saved))
    for plan in (there, alone):
        assert [node["environment"]["DSTACK_NODE_RANK"] for node in plan["nodes"]] == ["0", "1"]
        assert plan["nodes"][0]["environment"]["DSTACK_GPUS_NUM"] == "16"
        assert plan["nodes"][0]["script"] == there["nodes"][0]["script"]
    assert gpuctl("--lab", "ps") == before


def test_a_failing_rank_gives_its_code_and_its_last_lines(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    file = run_file(
        tmp_path,
        "fails",
        ["if [ $DSTACK_NODE_RANK -eq 1 ]; then echo no luck here; exit 7; fi", "sleep infinity"],
    )
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=7)
    assert "exit code 7" in output
    assert "Last lines of rank 1:\n  no luck here" in output
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def test_ctrl_c_stops_the_job_on_every_node(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    file = run_file(tmp_path, "endless", ["echo up; sleep infinity"])
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        read_until(process, "[1] up")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 130, rest
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def test_a_killed_client_leaves_a_run_that_logs_follow_and_stop_end(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    file = run_file(tmp_path, "orphan", ["echo up; sleep infinity"])
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        read_until(process, "[1] up")
        process.kill()
    with gpuctl.running("--lab", "logs", "orphan", "-f") as follower:
        read_until(follower, "[0] up")
        known = gpuctl.json("--lab", "ps")[0]
        assert known["status"] == "running"
        run = rf"run {known['run_id']} has been on cluster {cluster} since [0-9-]+ [0-9:]+ UTC"
        changed = cluster_file(tmp_path, cluster, tags={"team": "a"})
        refused = gpuctl("--lab", "up", str(changed), "--yes", code=2)
        assert re.search(rf"{run}, and this plan changes or removes what exists; ", refused)
        refused = gpuctl("--lab", "down", cluster, code=2)
        assert re.search(rf"{run}; it ends with the cluster\. Remove cluster {cluster} ", refused)
        gpuctl("--lab", "stop", "orphan")
        follower.communicate(timeout=60)
        assert follower.returncode == 0
    assert units(gpuctl, cluster) == "--- node[0-1]\n0\n0\n"


def test_too_few_nodes_is_said_before_anything_runs(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    file = run_file(tmp_path, "wide", ["true"], nodes=3)
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=2)
    assert output == (
        "gpuctl: error: run wide wants 3 nodes, cluster jobs has 2; use `--nodes 2`, or bring up a"
        " larger cluster\n"
    )


def test_destroy_comes_after_a_failure_too(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    file = run_file(tmp_path, "last", ["exit 9"], on_stop="destroy")
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, code=9)
    assert "Cluster jobs is gone" in output
    assert what_bills(gpuctl, cluster) == {}


def test_no_cluster_is_one_line(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file = run_file(tmp_path, "nowhere", ["true"])
    output = gpuctl("--lab", "run", str(file), "--cluster", "nowhere", code=2)
    assert output.count("\n") == 1
    assert output.startswith("gpuctl: error: there is no cluster 'nowhere'; ")
