"""Storage on machines that boot: what one node writes another reads, and disks are mounted."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, run_file
from tests.e2e.region import client, ec2, what_bills
from tests.e2e.test_software import reboot
from tests.engine.machines import wait_for
from tests.infra.somebodys_network import SomebodysNetwork

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


@pytest.mark.parametrize("kind", ["efs", "fsx-lustre"])
def test_a_file_system_that_exists_is_mounted_and_outlives_the_cluster(
    gpuctl: Gpuctl, tmp_path: Path, kind: str
) -> None:
    network = "10.215" if kind == "efs" else "10.216"
    theirs = SomebodysNetwork.make(ec2(gpuctl), f"{network}.0.0/16")
    subnet = theirs.public(f"{network}.0.0/24")
    theirs.ec2.modify_vpc_attribute(VpcId=theirs.vpc, EnableDnsHostnames={"Value": True})
    files, group = somebodys_files(gpuctl, theirs, subnet, kind)
    (gpuctl.lab.file_systems / files / "dataset").write_text("theirs\n")
    file = cluster_file(
        *(tmp_path, "guest"),
        network={"vpc": theirs.vpc, **DIRECT},
        storage={"shared": {"type": kind, "id": files, "path": "/data"}},
    )
    output = gpuctl("--lab", "up", str(file), "--yes")
    assert (
        f"Storage: {kind} {files} at /data of every node, which exists: gpuctl never changes or"
        f" removes it; the nodes join {group}\n"
    ) in output
    assert gpuctl("--lab", "exec", "guest", "--", "cat /data/dataset") == (
        "--- node[0-1]\ntheirs\n"
    )
    assert f"  uses file system {files} ({kind}) with its data\n" in gpuctl(
        "--lab", "status", "guest"
    )
    assert NO_CHANGE in gpuctl("--lab", "up", str(file), "--yes")
    gone = gpuctl("--lab", "down", "guest", "--yes")
    assert f"  stays: file system {files} ({kind}) with its data\n" in gone
    gpuctl("--lab", "gc", "--region", "us-east-1", "--remove", "--yes")
    assert what_bills(gpuctl, "guest") == {}
    assert (gpuctl.lab.file_systems / files / "dataset").read_text() == "theirs\n"
    service = client(gpuctl, "efs" if kind == "efs" else "fsx")
    assert [each["FileSystemId"] for each in service.describe_file_systems()["FileSystems"]] == [
        files
    ]
    if kind == "efs":
        (target,) = service.describe_mount_targets(FileSystemId=files)["MountTargets"]
        service.delete_mount_target(MountTargetId=target["MountTargetId"])
    service.delete_file_system(FileSystemId=files)


def somebodys_files(
    gpuctl: Gpuctl, theirs: SomebodysNetwork, subnet: str, kind: str
) -> tuple[str, str]:
    """Make a file system in the subnet; return its id and the group whose members reach it."""
    group = theirs.ec2.create_security_group(
        GroupName="files", Description="files", VpcId=theirs.vpc
    )["GroupId"]
    ports = [(2049, 2049)] if kind == "efs" else [(988, 988), (1018, 1023)]
    theirs.ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": first,
                "ToPort": last,
                "UserIdGroupPairs": [{"GroupId": group}],
            }
            for first, last in ports
        ],
    )
    if kind == "efs":
        efs = client(gpuctl, "efs")
        files = efs.create_file_system(CreationToken="theirs")["FileSystemId"]
        efs.create_mount_target(FileSystemId=files, SubnetId=subnet, SecurityGroups=[group])
        return files, group
    made = client(gpuctl, "fsx").create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[subnet],
        SecurityGroupIds=[group],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )
    return made["FileSystem"]["FileSystemId"], group
