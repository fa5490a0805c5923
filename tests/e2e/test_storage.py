"""Storage on machines that boot: what one node writes another reads, and disks are mounted."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file
from tests.e2e.region import what_bills
from tests.e2e.test_software import reboot

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("kind", ["efs", "fsx-lustre"])
def test_all_nodes_see_the_shared_file_system_and_it_goes_with_the_cluster(
    gpuctl: Gpuctl, tmp_path: Path, kind: str
) -> None:
    storage = {"shared": {"type": kind, "path": "/data"}}
    file = cluster_file(tmp_path, "shared", storage=storage)
    gpuctl("--lab", "up", str(file), "--yes")
    gpuctl("--lab", "exec", "shared", "--", "mountpoint -q /data && hostname > /data/$(hostname)")
    # Each node has written a file, and each sees both.
    seen = gpuctl("--lab", "exec", "shared", "--", "cat /data/* | sort -u | wc -l")
    assert seen == "--- node[0-1]\n2\n"
    service = "FSx" if kind == "fsx-lustre" else "EFS"
    status = json.dumps(gpuctl.json("--lab", "status", "shared"))
    assert f"{service} file system fs-" in status
    assert "0 to create, 0 to change, 0 to replace, 0 to delete" in gpuctl(
        "--lab", "up", str(file), "--yes"
    )
    gpuctl("--lab", "down", "shared", "--yes")
    assert what_bills(gpuctl, "shared") == {}
    assert list(gpuctl.lab.file_systems.iterdir()) == []


def test_own_disks_are_mounted_and_keep_their_files_over_a_reboot(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    storage = {"shared": {"type": "efs"}, "scratch": "/fast"}
    file = cluster_file(tmp_path, "disks", nodes=1, storage=storage)
    gpuctl("--lab", "up", str(file), "--yes")
    gpuctl("--lab", "exec", "disks", "--", "mountpoint -q /fast && echo kept > /fast/mine")
    gpuctl("--lab", "exec", "disks", "--", "echo kept > /shared/ours")
    reboot(gpuctl, "disks")
    after = gpuctl(
        *("--lab", "exec", "disks", "--"),
        "mountpoint -q /fast && mountpoint -q /shared && cat /fast/mine /shared/ours",
    )
    assert after.count("kept") == 2
    gpuctl("--lab", "down", "disks", "--yes")
