"""EFS and FSx as the lab has them: folders below, interfaces that hold the subnet, AWS's codes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.api.machines import NoMachines
from tests.lab.world import World, world


class Folders(NoMachines):
    """Keeps which file systems machines could mount."""

    def __init__(self) -> None:
        super().__init__()
        self.there: list[str] = []

    def add_file_system(self, file_system_id: str) -> None:
        self.there.append(file_system_id)

    def remove_file_system(self, file_system_id: str) -> None:
        if file_system_id in self.there:
            self.there.remove(file_system_id)


@pytest.fixture
def folders() -> Folders:
    return Folders()


@pytest.fixture
def region(folders: Folders) -> Iterator[World]:
    with world(folders) as made:
        yield made


def refused(call: Callable[..., Any], **request: Any) -> str:
    """The code with which the call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    return caught.value.response["Error"]["Code"]


def test_efs_can_be_mounted_once_it_has_a_mount_target(region: World, folders: Folders) -> None:
    efs = region.client("efs")
    files = efs.create_file_system(CreationToken="demo", Encrypted=True)["FileSystemId"]
    assert folders.there == []
    before = region.ec2.describe_subnets()["Subnets"][0]["AvailableIpAddressCount"]
    target = efs.create_mount_target(
        FileSystemId=files, SubnetId=region.subnet, SecurityGroups=[region.group]
    )
    assert folders.there == [files]
    assert target["LifeCycleState"] == "available"
    [interface] = region.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert interface["NetworkInterfaceId"] == target["NetworkInterfaceId"]
    assert interface["PrivateIpAddress"] == target["IpAddress"]
    after = region.ec2.describe_subnets()["Subnets"][0]["AvailableIpAddressCount"]
    assert before - after == 1

    assert refused(efs.delete_file_system, FileSystemId=files) == "FileSystemInUse"
    assert refused(region.ec2.delete_subnet, SubnetId=region.subnet) == "DependencyViolation"
    assert refused(efs.create_file_system, CreationToken="demo") == "FileSystemAlreadyExists"
    efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    efs.delete_file_system(FileSystemId=files)
    region.ec2.delete_subnet(SubnetId=region.subnet)
    assert folders.there == []
    assert refused(efs.describe_file_systems, FileSystemId=files) == "FileSystemNotFound"


def test_lustre_has_a_name_to_mount_and_an_interface(region: World, folders: Folders) -> None:
    fsx = region.client("fsx")
    made = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[region.subnet],
        SecurityGroupIds=[region.group],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )["FileSystem"]
    files = made["FileSystemId"]
    assert folders.there == [files]
    assert made["Lifecycle"] == "AVAILABLE"
    assert made["DNSName"] == f"{files}.fsx.us-east-1.amazonaws.com"
    assert len(made["LustreConfiguration"]["MountName"]) == 8
    [interface] = region.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert made["NetworkInterfaceIds"] == [interface["NetworkInterfaceId"]]
    assert refused(region.ec2.delete_subnet, SubnetId=region.subnet) == "DependencyViolation"
    assert [f["FileSystemId"] for f in fsx.describe_file_systems()["FileSystems"]] == [files]

    fsx.delete_file_system(FileSystemId=files)
    assert folders.there == []
    assert region.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    assert refused(fsx.describe_file_systems, FileSystemIds=[files]) == "FileSystemNotFound"
