"""Storage on machines that boot: what one node writes another reads, and disks are mounted."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, run_file
from tests.e2e.region import what_bills
from tests.e2e.test_software import reboot
from tests.engine.machines import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.thorough]
NO_CHANGE = "0 to create, 0 to change, 0 to replace, 0 to delete"


def test_a_file_system_and_own_disks_are_mounted_and_keep_their_files_over_a_reboot(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    storage = {"shared": {"type": "efs"}, "scratch": "/fast"}
    file = cluster_file(tmp_path, "shared", storage=storage)
    gpuctl("--lab", "up", str(file), "--yes")
    all_nodes_see_the_shared_file_system(gpuctl, "/shared", "EFS")
    gpuctl("--lab", "exec", "shared", "--", "mountpoint -q /fast && echo kept > /fast/mine")
    gpuctl("--lab", "exec", "shared", "--", "echo kept > /shared/ours")
    reboot(gpuctl, "shared")
    after = gpuctl(
        *("--lab", "exec", "shared", "--"),
        "mountpoint -q /fast && mountpoint -q /shared && cat /fast/mine /shared/ours",
    )
    assert after == "--- node[0-1]\nkept\nkept\n"
    assert NO_CHANGE in gpuctl("--lab", "up", str(file), "--yes")
    its_file_system_goes_with_the_cluster(gpuctl)


def test_a_lustre_is_seen_by_all_nodes_and_goes_with_the_cluster(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    storage = {"shared": {"type": "fsx-lustre", "path": "/data"}}
    file = cluster_file(tmp_path, "shared", storage=storage, network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    all_nodes_see_the_shared_file_system(gpuctl, "/data", "FSx")
    assert NO_CHANGE in gpuctl("--lab", "up", str(file), "--yes")
    a_run_that_nobody_follows_leaves_everything_there(gpuctl, tmp_path, file)
    its_file_system_goes_with_the_cluster(gpuctl)


def a_run_that_nobody_follows_leaves_everything_there(
    gpuctl: Gpuctl, tmp_path: Path, cluster: Path
) -> None:
    """Check what the nodes save before they power off, what is said about it, and who gets it."""
    commands = ["mkdir out && hostname > out/model; echo said by $GPUCTL_NODE_NAME"]
    file = run_file(tmp_path, "left", commands, on_stop="destroy", outputs=["out/"])
    started = gpuctl.json("--lab", "run", str(file), "--cluster", "shared", "--detach")
    run_id = started["run_id"]
    (storage,) = gpuctl.lab.file_systems.iterdir()
    saved = storage / "gpuctl" / "saved" / run_id
    wait_for((saved / "journal.jsonl").exists, 300)
    kept = {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()}
    assert kept == {
        *("journal.jsonl", "metrics.jsonl", "rank-0.log", "rank-1.log"),
        *("outputs/rank-0/out/model", "outputs/rank-1/out/model"),
    }
    assert (saved / "rank-1.log").read_text() == "said by node1\n"

    def states() -> set[str]:
        (cluster,) = gpuctl.json("--lab", "status", "shared")
        return {node["state"] for node in cluster["nodes"]}

    wait_for(lambda: states() == {"terminated"}, 300)
    path = f"/data/gpuctl/saved/{run_id}"
    assert gpuctl("--lab", "attach", run_id, code=125).endswith(
        f"if the run is over, its nodes have powered off, and have left its log, metrics and"
        f" outputs in {path}: `{gpuctl.program} up FILE` and `{gpuctl.program} attach {run_id}`"
        f" get them, `{gpuctl.program} down shared` deletes them\n"
    )
    gpuctl("--lab", "up", str(cluster), "--yes")
    shown = gpuctl("--lab", "attach", run_id)
    assert f"-- fetched from {path} of shared\n" in shown
    assert "[node1] said by node1\n" in shown
    outputs = tmp_path / "outputs" / run_id
    assert (outputs / "rank-1/out/model").read_text().startswith("ip-10-")
    (run,) = gpuctl.json("--lab", "ps", "-n", "1")
    assert (run["run_id"], run["status"], run["exit_code"]) == (run_id, "done", 0)
    assert gpuctl.json("--lab", "top", run_id)["nodes"]


def all_nodes_see_the_shared_file_system(gpuctl: Gpuctl, path: str, service: str) -> None:
    """Check that each node has written a file, and that each sees both."""
    write = f"mountpoint -q {path} && hostname > {path}/$(hostname)"
    gpuctl("--lab", "exec", "shared", "--", write)
    seen = gpuctl("--lab", "exec", "shared", "--", f"cat {path}/* | sort -u | wc -l")
    assert seen == "--- node[0-1]\n2\n"
    status = json.dumps(gpuctl.json("--lab", "status", "shared"))
    assert f"{service} file system fs-" in status


def its_file_system_goes_with_the_cluster(gpuctl: Gpuctl) -> None:
    gpuctl("--lab", "down", "shared", "--yes")
    assert what_bills(gpuctl, "shared") == {}
    assert list(gpuctl.lab.file_systems.iterdir()) == []
