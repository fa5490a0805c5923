"""A file system that exists is checked before anything is made: its zone, its rules, its owner."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.render.plan import storage_lines
from config.cluster.cluster_file import Cluster, Shared
from config.cluster.resolved import Resolved
from config.errors import GpuctlError, InputError
from config.loading.load import check
from config.target import Target
from provision.aws.clients import client
from provision.preflight.existing_storage import FoundStorage, storage_access
from provision.preflight.preflight import resolve
from provision.state.record import new_record
from provision.state.store import ClusterStore
from tests.infra.somebodys_network import SomebodysNetwork

pytestmark = pytest.mark.slow

A, B = "us-east-1a", "us-east-1b"
SUBNET_A, SUBNET_B = "10.40.0.0/20", "10.40.16.0/20"
Rule = dict[str, Any]


class Account:
    """A region with a network that exists: subnets in two zones, and security groups."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.ec2 = client(target, "ec2")
        self.network = SomebodysNetwork.make(self.ec2)
        self.ec2.modify_vpc_attribute(VpcId=self.network.vpc, EnableDnsHostnames={"Value": True})
        self.subnets = {
            A: self.network.public(SUBNET_A, A),
            B: self.network.public(SUBNET_B, B),
        }

    def group(self, *rules: Rule) -> str:
        """Make a security group with these inbound rules; the source `self` is the group itself."""
        made = self.ec2.create_security_group(
            GroupName=f"files{len(self.ec2.describe_security_groups()['SecurityGroups'])}",
            Description="x",
            VpcId=self.network.vpc,
        )["GroupId"]
        for rule in rules:
            source = rule.pop("source")
            admitted: Any = {
                "UserIdGroupPairs": [{"GroupId": made if source == "self" else source}]
            }
            if "/" in source:
                admitted = {"IpRanges": [{"CidrIp": source}]}
            permission: Any = {"IpProtocol": "tcp", **rule, **admitted}
            self.ec2.authorize_security_group_ingress(GroupId=made, IpPermissions=[permission])
        return made

    def efs(self, group: str, *zones: str, **more: Any) -> str:
        efs: Any = client(self.target, "efs")
        made = str(efs.create_file_system(CreationToken=f"{group}{zones}", **more)["FileSystemId"])
        for zone in zones:
            efs.create_mount_target(
                FileSystemId=made, SubnetId=self.subnets[zone], SecurityGroups=[group]
            )
        return made

    def lustre(self, group: str, zone: str) -> str:
        fsx: Any = client(self.target, "fsx")
        return str(
            fsx.create_file_system(
                FileSystemType="LUSTRE",
                StorageCapacity=1200,
                SubnetIds=[self.subnets[zone]],
                SecurityGroupIds=[group],
                LustreConfiguration={"DeploymentType": "SCRATCH_2"},
            )["FileSystem"]["FileSystemId"]
        )

    def resolve(self, kind: str, files: str, **changes: Any) -> Resolved:
        fields = {
            "name": "demo",
            "nodes": 2,
            "instance_type": "g6e.8xlarge",
            "network": {"vpc": self.network.vpc, "access": "elastic-ip"},
            "storage": {"shared": {"type": kind, "id": files}},
            **changes,
        }
        cluster = Cluster.model_validate_json(json.dumps(fields))
        return resolve(cluster, ClusterStore(self.target))

    def complaint(self, kind: str, files: str, **changes: Any) -> str:
        with pytest.raises(GpuctlError) as caught:
            self.resolve(kind, files, **changes)
        assert isinstance(caught.value, InputError)
        return str(caught.value)


NFS: Rule = {"FromPort": 2049, "ToPort": 2049}
LUSTRE = ({"FromPort": 988, "ToPort": 988}, {"FromPort": 1018, "ToPort": 1023})


@pytest.fixture
def account(empty_region: Target) -> Account:
    return Account(empty_region)


def test_nodes_join_the_group_of_an_efs_whose_members_are_admitted(account: Account) -> None:
    group = account.group({**NFS, "source": "self"})
    files = account.efs(group, A)
    resolved = account.resolve("efs", files)
    assert resolved.zones == (A,), "only there it has a mount target"
    assert resolved.existing_storage is not None
    assert resolved.existing_storage.source == f"{files}.efs.us-east-1.amazonaws.com:/"
    assert resolved.existing_storage.groups == {A: (group,)}
    assert storage_lines(resolved)[0] == (
        f"Storage: efs {files} at /shared of every node, which exists: gpuctl never changes or"
        f" removes it; the nodes join {group}"
    )


def test_nodes_join_another_group_that_an_efs_admits(account: Account) -> None:
    clients = account.group()
    files = account.efs(account.group({**NFS, "source": clients}), A, B)
    resolved = account.resolve("efs", files)
    assert resolved.zones == (A, B)
    assert resolved.existing_storage is not None
    assert resolved.existing_storage.groups == {A: (clients,), B: (clients,)}


def test_nodes_whose_addresses_an_efs_admits_join_no_group(account: Account) -> None:
    files = account.efs(account.group({**NFS, "source": "10.40.0.0/16"}), A)
    resolved = account.resolve("efs", files)
    assert resolved.existing_storage is not None
    assert resolved.existing_storage.groups == {A: ()}


def test_nodes_join_the_group_of_a_lustre_in_its_zone(account: Account) -> None:
    group = account.group(*({**ports, "source": "self"} for ports in LUSTRE))
    files = account.lustre(group, B)
    resolved = account.resolve("fsx-lustre", files)
    fsx: Any = client(account.target, "fsx")
    name = fsx.describe_file_systems()["FileSystems"][0]["LustreConfiguration"]["MountName"]
    assert resolved.zones == (B,)
    assert resolved.existing_storage is not None
    assert resolved.existing_storage.source == f"{files}.fsx.us-east-1.amazonaws.com@tcp:/{name}"
    assert resolved.existing_storage.groups == {B: (group,)}


def test_rules_that_admit_no_node_are_an_error_with_the_command_that_opens_them(
    account: Account,
) -> None:
    group = account.group({**NFS, "source": "10.40.0.0/24"})
    files = account.efs(group, A)
    assert account.complaint("efs", files) == (
        f"storage.shared.id: {files} admits no nodes in us-east-1a: none of its security groups"
        f" ({group}) opens TCP 2049 to its members or to {SUBNET_A}; `aws ec2"
        f" authorize-security-group-ingress --group-id {group} --protocol tcp --port 2049"
        f" --source-group {group}`: gpuctl then puts the nodes into {group}"
    )
    group = account.group({**LUSTRE[0], "source": "self"}, {**LUSTRE[1], "source": "10.40.0.0/16"})
    files = account.lustre(group, A)
    assert account.complaint("fsx-lustre", files).startswith(
        f"storage.shared.id: {files} admits no nodes in us-east-1a: none of its security groups"
        f" ({group}) opens TCP 988 and 1018-1023 to its members; `aws ec2 "
    )


def test_a_zone_without_the_file_system_is_an_error(account: Account) -> None:
    group = account.group(*({**ports, "source": "self"} for ports in (NFS, *LUSTRE)))
    files = account.efs(group, A)
    zones = {"capacity": {"zones": [B]}}
    assert account.complaint("efs", files, **zones) == (
        f"storage.shared.id: {files} has mount targets in us-east-1a, and the nodes may be in"
        " us-east-1b; create a mount target there, or change capacity.zones and network.subnet"
    )
    files = account.lustre(group, A)
    assert account.complaint("fsx-lustre", files, **zones) == (
        f"storage.shared.id: {files} is in us-east-1a, and the nodes may be in us-east-1b; change"
        " capacity.zones and network.subnet: Lustre's clients belong into its zone"
    )


def test_another_vpc_is_an_error(account: Account) -> None:
    files = account.efs(account.group({**NFS, "source": "self"}), A)
    other = SomebodysNetwork.make(account.ec2, "10.50.0.0/16")
    other.public("10.50.0.0/20", A)
    account.ec2.modify_vpc_attribute(VpcId=other.vpc, EnableDnsHostnames={"Value": True})
    network = {"vpc": other.vpc, "access": "elastic-ip"}
    assert account.complaint("efs", files, network=network) == (
        f"storage.shared.id: {files} is in {account.network.vpc}, and the nodes are in {other.vpc};"
        f" set network.vpc to {account.network.vpc}, or name another file system"
    )


@pytest.mark.parametrize(
    ("kind", "title", "command"), [("efs", "EFS", "efs"), ("fsx-lustre", "FSx for Lustre", "fsx")]
)
def test_a_file_system_that_does_not_exist_is_an_error(
    account: Account, kind: str, title: str, command: str
) -> None:
    assert account.complaint(kind, "fs-0123456789abcdef0") == (
        f"storage.shared.id: fs-0123456789abcdef0 is no {title} of this account in us-east-1; `aws"
        f" {command} describe-file-systems --region us-east-1` lists yours"
    )


def test_a_file_system_of_another_cluster_is_warned_of(account: Account) -> None:
    tags = [{"Key": "gpuctl:cluster", "Value": "old"}]
    files = account.efs(account.group({**NFS, "source": "self"}), A, Tags=tags)
    assert f"{files} belongs to cluster old: `gpuctl down old` deletes it" in (
        account.resolve("efs", files).warnings
    )


def test_nodes_join_no_group_of_a_peered_vpc() -> None:
    pair = {"GroupId": "sg-peer", "VpcPeeringConnectionId": "pcx-1"}
    rule = {"IpProtocol": "tcp", **NFS, "UserIdGroupPairs": [pair], "IpRanges": []}
    shared = Shared(type="efs", id="fs-0123456789abcdef0")
    storage = FoundStorage(shared, "", "vpc-1", {A: ("sg-files",)}, {"sg-files": [rule]}, {})
    access, problems = storage_access(storage, "vpc-1", {A: SUBNET_A})
    assert access.groups == {}
    assert [problem.message for problem in problems] == [
        f"{storage.name} admits no nodes in {A}: none of its security groups (sg-files) opens TCP"
        f" 2049 to its members or to {SUBNET_A}"
    ]


def test_the_file_system_that_a_cluster_made_cannot_become_one_that_it_mounts(
    account: Account,
) -> None:
    """Pulumi would delete it: the file does not create it any more."""
    store = ClusterStore(account.target)
    before = account.resolve("efs", account.efs(account.group({**NFS, "source": "self"}), A))
    store.write(new_record(before, datetime.now(UTC)))
    tags = [{"Key": name, "Value": before.tags[name]} for name in ("gpuctl:cluster", "gpuctl:id")]
    files = account.efs(account.group({**NFS, "source": "self"}), A, Tags=tags)
    assert account.complaint("efs", files) == (
        f"storage.shared.id: {files} was created for this cluster, and `up` would delete it with"
        " its data: a cluster with storage.shared.id creates none; remove storage.shared.id: the"
        " cluster keeps its file system"
    )


@pytest.mark.parametrize(
    ("storage", "line"),
    [
        (
            "{type: efs, id: fs-0123456789abcdef0}",
            "E214 'storage.shared.id' is fs-0123456789abcdef0, which exists in a VPC, and"
            " gpuctl would create another VPC for the nodes; name its VPC: `network: {vpc: vpc-…}`",
        ),
        (
            "{type: fsx-lustre, id: fs-0123456789abcdef0, capacity_gib: 1200}\nnetwork: {vpc:"
            " vpc-0123456789abcdef0}",
            "E214 'storage.shared.capacity_gib' has no effect: fs-0123456789abcdef0 exists already;"
            " remove it",
        ),
    ],
)
def test_the_file_is_checked_without_aws(tmp_path: Any, storage: str, line: str) -> None:
    file = tmp_path / "cluster.yaml"
    text = f"name: demo\nnodes: 2\ninstance_type: p5.48xlarge\nstorage:\n  shared: {storage}\n"
    file.write_text(text)
    (found,) = check(file)
    assert str(found).partition(" ")[2] == line
