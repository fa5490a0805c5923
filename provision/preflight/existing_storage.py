"""The checks of a shared file system that exists, which gpuctl mounts and never changes.

Nodes reach it by TCP through its interfaces. A new security group of nodes is in no rule of theirs:
either the rules admit the addresses of the nodes' subnet, or the nodes join a group that the rules
admit. Ports and rules: EFS User Guide, "Using VPC security groups"; FSx for Lustre User Guide,
"File system access control with Amazon VPC" (2026-11-20). Lustre's servers also connect to their
clients, so its nodes have to be members of the file system's own group.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from config.cluster.cluster_file import Cluster, Shared
from config.cluster.resolved import CLUSTER_TAG, ID_TAG, ExistingStorage, Resolved
from config.command_text import command_text
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.clients import aws_errors, client

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_TITLES = {"efs": "EFS", "fsx-lustre": "FSx for Lustre"}
_UNKNOWN = frozenset({"FileSystemNotFound", "ValidationException"})


@dataclass(frozen=True)
class FoundStorage:
    """A file system in AWS: its VPC, and in each of its zones the security groups in its way.

    `rules` are EC2's inbound rules of each group. `tags` name the cluster of gpuctl that made the
    file system, if one did.
    """

    shared: Shared
    source: str
    vpc: str
    groups: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, Sequence[Any]]
    tags: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the field and the id, as messages begin."""
        return f"storage.shared.id: {self.shared.id}"


def find_storage(target: Target, cluster: Cluster) -> FoundStorage | None:
    """Return the file system that the file names; None if it names none.

    Raises InputError if it does not exist in the region, is not of the type, or is not available.
    """
    shared = cluster.storage.shared
    if shared is None or shared.id is None:
        return None
    try:
        with aws_errors():
            find = _efs if shared.type == "efs" else _lustre
            return find(target, shared, client(target, "ec2"))
    except CloudError as error:
        if error.code not in _UNKNOWN:
            raise
        what = "efs" if shared.type == "efs" else "fsx"
        listing = command_text("aws {} describe-file-systems --region {}", what, target.region)
        raise InputError(
            f"storage.shared.id: {shared.id} is no {_TITLES[shared.type]} of this account in"
            f" {target.region}",
            f"{listing} lists yours",
        ) from error


def storage_zones(storage: FoundStorage, zones: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the zones in which the file system can be mounted; InputError if none."""
    left = tuple(zone for zone in zones if zone in storage.groups)
    if zones and not left:
        where = ", ".join(storage.groups) or "no zone"
        if storage.shared.type == "efs":
            raise InputError(
                f"{storage.name} has mount targets in {where}, and the nodes may be in"
                f" {', '.join(zones)}",
                "create a mount target there, or change capacity.zones and network.subnet",
            )
        raise InputError(
            f"{storage.name} is in {where}, and the nodes may be in {', '.join(zones)}",
            "change capacity.zones and network.subnet: Lustre's clients belong into its zone",
        )
    return left


def storage_access(
    storage: FoundStorage, vpc: str, subnets: Mapping[str, str]
) -> tuple[ExistingStorage, list[InputError]]:
    """Return the file system with the groups that the nodes join in each zone, and all problems.

    `vpc` is that of the nodes, `subnets` has the IPv4 range of the nodes' subnet in each zone.
    """
    problems = []
    if storage.vpc != vpc:
        problems.append(
            InputError(
                f"{storage.name} is in {storage.vpc}, and the nodes are in {vpc}",
                f"set network.vpc to {storage.vpc}, or name another file system",
            )
        )
    joined: dict[str, tuple[str, ...]] = {}
    for zone, subnet in subnets.items() if not problems else ():
        group = _admitted(storage, zone, subnet)
        if group is None:
            problems.append(_not_admitted(storage, zone, subnet))
        else:
            joined[zone] = (group,) if group else ()
    assert storage.shared.id is not None
    return ExistingStorage(id=storage.shared.id, source=storage.source, groups=joined), problems


def storage_warnings(storage: FoundStorage) -> Iterator[str]:
    """Yield a warning if the file system ends with another cluster."""
    if cluster := storage.tags.get(CLUSTER_TAG):
        yield (
            f"{storage.shared.id} belongs to cluster {cluster}:"
            f" {command_text('gpuctl down {}', cluster)} deletes it"
        )


def check_not_own(storage: FoundStorage, before: Resolved | None) -> None:
    """Raise InputError if `up` made the file system for the cluster `before`, and would delete it.

    A cluster with `storage.shared.id` creates no file system, so Pulumi removes its former one.
    """
    if before is not None and storage.tags.get(ID_TAG) == before.tags[ID_TAG]:
        raise InputError(
            f"{storage.name} was created for this cluster, and `up` would delete it with its data:"
            " a cluster with storage.shared.id creates none",
            "remove storage.shared.id: the cluster keeps its file system",
        )


def _efs(target: Target, shared: Shared, ec2: "EC2Client") -> FoundStorage:
    efs = client(target, "efs")
    described = efs.describe_file_systems(FileSystemId=shared.id)["FileSystems"][0]
    _check_available(shared, described["LifeCycleState"], "available")
    targets = efs.describe_mount_targets(FileSystemId=shared.id)["MountTargets"]
    usable = [target for target in targets if target["LifeCycleState"] == "available"]
    groups = {}
    for mount in sorted(usable, key=lambda mount: str(mount["AvailabilityZoneName"])):
        answer = efs.describe_mount_target_security_groups(MountTargetId=mount["MountTargetId"])
        groups[mount["AvailabilityZoneName"]] = tuple(answer["SecurityGroups"])
    return FoundStorage(
        shared=shared,
        source=f"{shared.id}.efs.{target.region}.amazonaws.com:/",
        vpc=next((str(mount["VpcId"]) for mount in usable), ""),
        groups=groups,
        rules=_rules(ec2, groups),
        tags=_tags(described),
    )


def _lustre(target: Target, shared: Shared, ec2: "EC2Client") -> FoundStorage:
    answer = client(target, "fsx").describe_file_systems(FileSystemIds=[shared.id])
    described = answer["FileSystems"][0]
    if described["FileSystemType"] != "LUSTRE":
        raise InputError(
            f"storage.shared.id: {shared.id} is an FSx for {described['FileSystemType']}",
            "name an FSx for Lustre",
        )
    _check_available(shared, described["Lifecycle"], "AVAILABLE")
    subnet = ec2.describe_subnets(SubnetIds=described["SubnetIds"][:1])["Subnets"][0]
    interfaces = ec2.describe_network_interfaces(
        NetworkInterfaceIds=described["NetworkInterfaceIds"][:1]
    )["NetworkInterfaces"]
    own = tuple(group["GroupId"] for each in interfaces for group in each["Groups"])
    groups = {subnet["AvailabilityZone"]: own}
    mount = described["LustreConfiguration"]["MountName"]
    return FoundStorage(
        shared=shared,
        source=f"{described['DNSName']}@tcp:/{mount}",
        vpc=described["VpcId"],
        groups=groups,
        rules=_rules(ec2, groups),
        tags=_tags(described),
    )


def _check_available(shared: Shared, state: str, required: str) -> None:
    if state != required:
        raise InputError(
            f"storage.shared.id: {shared.id} is {state}, not {required}", "wait, or name another"
        )


def _tags(described: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}


def _rules(ec2: "EC2Client", groups: Mapping[str, tuple[str, ...]]) -> dict[str, Sequence[Any]]:
    """Return the inbound rules of each group."""
    ids = sorted({group for several in groups.values() for group in several})
    if not ids:
        return {}
    described = ec2.describe_security_groups(GroupIds=ids)["SecurityGroups"]
    return {group["GroupId"]: group["IpPermissions"] for group in described}


def _admitted(storage: FoundStorage, zone: str, subnet: str) -> str | None:
    """Return the group with which nodes are admitted, empty if they need none, None if not at all.

    Each of the file system's groups may admit them.
    """
    own = storage.groups[zone]
    is_efs = storage.shared.type == "efs"
    if is_efs and _opens_all(storage, own, lambda rule: _has(rule, subnet)):
        return ""
    sources: set[str] = {
        pair["GroupId"]
        for group in own
        for rule in storage.rules[group]
        for pair in rule["UserIdGroupPairs"]
        if "VpcPeeringConnectionId" not in pair  # nodes cannot join a group of another VPC
    }
    candidates: list[str] = [*own, *(sorted(sources - {*own}) if is_efs else ())]
    for group in candidates:
        if _opens_all(storage, own, partial(_names, group)):
            return group
    return None


def _opens_all(storage: FoundStorage, groups: Sequence[str], admits: Callable[[Any], bool]) -> bool:
    """Return whether the groups' rules that admit somebody open all ports of the file system."""
    rules = [rule for group in groups for rule in storage.rules[group] if admits(rule)]
    return all(
        any(
            rule["IpProtocol"] == "-1"
            or (rule["IpProtocol"] == "tcp" and rule["FromPort"] <= first <= last <= rule["ToPort"])
            for rule in rules
        )
        for first, last in storage.shared.ports
    )


def _has(rule: Any, subnet: str) -> bool:
    """Return whether the rule admits every address of the subnet."""
    ranges = [IPv4Network(each["CidrIp"]) for each in rule["IpRanges"]]
    return any(IPv4Network(subnet).subnet_of(each) for each in ranges)


def _names(group: str, rule: Any) -> bool:
    return any(pair["GroupId"] == group for pair in rule["UserIdGroupPairs"])


def _not_admitted(storage: FoundStorage, zone: str, subnet: str) -> InputError:
    ports = [
        str(first) if first == last else f"{first}-{last}" for first, last in storage.shared.ports
    ]
    own = storage.groups[zone]
    if not own:
        return InputError(f"{storage.name} has no security group in {zone}", "give it one")
    command = (
        "aws ec2 authorize-security-group-ingress --group-id {} --protocol tcp --port {}"
        " --source-group {}"
    )
    allow = " and ".join(command_text(command, own[0], port, own[0]) for port in ports)
    addresses = f" or to {subnet}" if storage.shared.type == "efs" else ""
    return InputError(
        f"{storage.name} admits no nodes in {zone}: none of its security groups ({', '.join(own)})"
        f" opens TCP {' and '.join(ports)} to its members{addresses}",
        f"{allow}: gpuctl then puts the nodes into {own[0]}",
    )
