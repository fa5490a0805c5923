"""Each kind of storage against the engine, the lab's provider and its API."""

import base64
import gzip
from pathlib import Path
from typing import Any

import boto3
import pytest

from config.cluster.resolved import Resolved
from infra.program.user_data import FILE_SYSTEM
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from tests import golden
from tests.infra.region import CREDENTIALS, Region, client, resolved

pytestmark = pytest.mark.thorough

GOLDEN = Path(__file__).parent / "golden"
MODES: dict[str, dict[str, Any]] = {
    "efs": {"type": "efs"},
    "fsx-scratch": {"type": "fsx-lustre"},
    "fsx-persistent": {
        "type": "fsx-lustre",
        "deployment": "persistent",
        "capacity_gib": 2400,
        "throughput": 250,
    },
}


@pytest.fixture
def stack(here: Region, engine: Engine) -> Stack:
    return Stack("demo", here.target, engine)


def aws(here: Region, service: str) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=here.target.endpoint,
        region_name=here.target.region,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


def asked(here: Region, storage: dict[str, Any]) -> Resolved:
    text = f"#cloud-config\n# {FILE_SYSTEM}\n"
    return resolved(here.target, storage=storage).model_copy(update={"user_data": text})


def mounted(here: Region) -> str:
    """What the user data of the nodes say that is mounted."""
    ec2 = client(here.target)
    told = ec2.describe_launch_template_versions(
        LaunchTemplateName="gpuctl-demo-nodes", Versions=["$Latest"]
    )["LaunchTemplateVersions"][0]
    data = base64.b64decode(told["LaunchTemplateData"]["UserData"])
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    return text.splitlines()[1].removeprefix("# ")


@pytest.mark.engine
@pytest.mark.parametrize("mode", MODES)
def test_each_shared_file_system_is_planned_made_and_removed(
    here: Region, stack: Stack, mode: str
) -> None:
    wanted = asked(here, {"shared": MODES[mode]})
    changes = sorted((c.type, c.name, c.op) for c in stack.preview(wanted).changes)
    text = "".join(f"{op} {kind} {name}\n" for kind, name, op in changes)
    golden.check(GOLDEN / f"plan-{MODES[mode]['type']}.txt", text)
    stack.up(wanted)
    assert stack.preview(wanted).is_empty, "a second up finds nothing to change"
    files = aws(here, "efs" if mode == "efs" else "fsx")
    [there] = files.describe_file_systems()["FileSystems"]
    assert {"Key": "gpuctl:cluster", "Value": "demo"} in there["Tags"]
    identity = there["FileSystemId"]
    if mode == "efs":
        assert (there["Encrypted"], there["ThroughputMode"]) == (True, "elastic")
        assert mounted(here) == f"{identity}.efs.us-east-1.amazonaws.com:/"
        [target] = files.describe_mount_targets(FileSystemId=identity)["MountTargets"]
        assert target["SubnetId"] == stack.fleet().subnet_id  # type: ignore[union-attr]
    else:
        lustre = there["LustreConfiguration"]
        name = f"{identity}.fsx.us-east-1.amazonaws.com@tcp:/{lustre['MountName']}"
        assert mounted(here) == name
        speed = lustre.get("PerUnitStorageThroughput")
        shown = (there["StorageCapacity"], lustre["DeploymentType"], speed)
        persistent = (2400, "PERSISTENT_2", 250)
        assert shown == (persistent if mode == "fsx-persistent" else (1200, "SCRATCH_2", None))
    stack.destroy()
    assert files.describe_file_systems()["FileSystems"] == []
    assert client(here.target).describe_network_interfaces()["NetworkInterfaces"] == []


@pytest.mark.engine
@pytest.mark.parametrize(("kind", "ports"), [("efs", [2049]), ("fsx-lustre", [988, 1018])])
def test_nodes_and_file_system_alone_reach_it(
    here: Region, stack: Stack, kind: str, ports: list[int]
) -> None:
    stack.up(asked(here, {"shared": {"type": kind}}))
    ec2 = client(here.target)
    groups = {g["GroupName"]: g for g in ec2.describe_security_groups()["SecurityGroups"]}
    shared = groups["gpuctl-demo-shared"]
    for rules in (shared["IpPermissions"], shared["IpPermissionsEgress"]):
        assert sorted(rule["FromPort"] for rule in rules) == ports
        for rule in rules:
            assert (rule["IpProtocol"], rule["IpRanges"]) == ("tcp", [])
            assert [p["GroupId"] for p in rule["UserIdGroupPairs"]] == [shared["GroupId"]]
    found = ec2.describe_network_interfaces(
        Filters=[{"Name": "group-id", "Values": [shared["GroupId"]]}]
    )["NetworkInterfaces"]
    nodes = groups["gpuctl-demo-nodes"]["GroupId"]
    others = [i for i in found if nodes not in [g["GroupId"] for g in i["Groups"]]]
    assert len(others) == 1, "the file system's own"
    assert len(found) == 1 + 2 * len(resolved(here.target).interfaces)


@pytest.mark.engine
def test_another_size_is_shown_as_another_file_system(here: Region, stack: Stack) -> None:
    stack.up(asked(here, {"shared": {"type": "fsx-lustre"}}))
    larger = stack.preview(asked(here, {"shared": {"type": "fsx-lustre", "capacity_gib": 2400}}))
    [change] = [c for c in larger.changes if "fsx" in c.type]
    assert (change.op, change.details) == (
        "replace",
        ("storageCapacity: 1200 -> 2400 (forces replacement)",),
    )
    gone = stack.preview(asked(here, {}))
    assert [c.op for c in gone.changes if "fsx" in c.type] == ["delete"]


@pytest.mark.engine
def test_a_root_volume_has_the_size_and_speed_asked_for(here: Region, stack: Stack) -> None:
    stack.up(asked(here, {"root": {"gib": 500, "iops": 6000, "throughput": 500}}))
    ec2 = client(here.target)
    volumes = [v for v in ec2.describe_volumes()["Volumes"] if v["Size"] == 500]
    assert [(v["VolumeType"], v["Iops"], v["Throughput"]) for v in volumes] == [
        ("gp3", 6000, 500)
    ] * 2
