"""Storage on machines that boot: what one node writes another reads, and disks are mounted."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file
from tests.e2e.region import what_bills
from tests.e2e.test_software import reboot

pytestmark = pytest.mark.lab


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
    it_goes_with_the_cluster(gpuctl, file)


def test_a_lustre_is_seen_by_all_nodes_and_goes_with_the_cluster(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    storage = {"shared": {"type": "fsx-lustre", "path": "/data"}}
    file = cluster_file(tmp_path, "shared", storage=storage, network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    all_nodes_see_the_shared_file_system(gpuctl, "/data", "FSx")
    it_goes_with_the_cluster(gpuctl, file)


def all_nodes_see_the_shared_file_system(gpuctl: Gpuctl, path: str, service: str) -> None:
    """Check that each node has written a file, and that each sees both."""
    write = f"mountpoint -q {path} && hostname > {path}/$(hostname)"
    gpuctl("--lab", "exec", "shared", "--", write)
    seen = gpuctl("--lab", "exec", "shared", "--", f"cat {path}/* | sort -u | wc -l")
    assert seen == "--- node[0-1]\n2\n"
    status = json.dumps(gpuctl.json("--lab", "status", "shared"))
    assert f"{service} file system fs-" in status


def it_goes_with_the_cluster(gpuctl: Gpuctl, file: Path) -> None:
    assert "0 to create, 0 to change, 0 to replace, 0 to delete" in gpuctl(
        "--lab", "up", str(file), "--yes"
    )
    gpuctl("--lab", "down", "shared", "--yes")
    assert what_bills(gpuctl, "shared") == {}
    assert list(gpuctl.lab.file_systems.iterdir()) == []
