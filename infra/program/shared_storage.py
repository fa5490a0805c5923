"""The file system that all nodes share: made and removed with the cluster, or one that exists."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from config.cluster.cluster_file import Shared
from infra.program.tags import Named
from infra.program.vpc import VpcIds

DEPLOYMENTS = {"scratch": "SCRATCH_2", "persistent": "PERSISTENT_2"}

LUSTRE = "2.15"
"""The server's version; AWS's clients for Ubuntu 22.04 and 24.04 and for AL2023 are 2.15 too."""


@dataclass(frozen=True)
class SharedStorage:
    """A shared file system: members of the `groups` may reach it, and nodes mount `source`.

    Nodes boot while its mount target is created, and mount it as soon as they can reach it.
    """

    groups: tuple[pulumi.Input[str], ...]
    source: pulumi.Output[str]


def storage(network: VpcIds, named: Named) -> SharedStorage | None:
    """Create the file system of the cluster file, reachable from the nodes' subnet; or None.

    Nothing is created for one that exists.
    """
    shared, existing = named.resolved.cluster.storage.shared, named.resolved.existing_storage
    if existing is not None:
        groups = existing.groups.get(named.resolved.zone, ())
        return SharedStorage(groups, pulumi.Output.from_input(existing.source))
    if shared is None:
        return None
    members = _members(shared, network, named)
    if shared.type == "efs":
        return SharedStorage((members.id,), _efs(members, network, named))
    return SharedStorage((members.id,), _lustre(shared, members, network, named))


def _members(shared: Shared, network: VpcIds, named: Named) -> aws.ec2.SecurityGroup:
    """Create a group for the nodes and the file system, whose members reach each other's ports.

    Lustre's servers also open connections to their clients and to each other.
    """
    return aws.ec2.SecurityGroup(
        "shared",
        name=named.name("shared"),
        description=f"gpuctl {named.resolved.cluster.name}: nodes and their shared file system",
        vpc_id=network.vpc,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(
                description=shared.type, protocol="tcp", from_port=first, to_port=last, self=True
            )
            for first, last in shared.ports
        ],
        egress=[
            aws.ec2.SecurityGroupEgressArgs(
                description=shared.type, protocol="tcp", from_port=first, to_port=last, self=True
            )
            for first, last in shared.ports
        ],
        tags=named.tags("shared"),
        opts=named.options(),
    )


def _efs(members: aws.ec2.SecurityGroup, network: VpcIds, named: Named) -> pulumi.Output[str]:
    """Create an encrypted EFS with elastic throughput and a mount target in the nodes' subnet."""
    files = aws.efs.FileSystem(
        "shared",
        creation_token=named.name(),
        encrypted=True,
        throughput_mode="elastic",
        tags=named.tags("shared"),
        # The token is in use until the old file system is deleted.
        opts=named.options(delete_first=True),
    )
    aws.efs.MountTarget(
        "shared",
        file_system_id=files.id,
        subnet_id=network.nodes,
        security_groups=[members.id],
        # A file system has at most one mount target per zone.
        opts=named.options(delete_first=True),
    )
    return pulumi.Output.concat(files.dns_name, ":/")


def _lustre(
    shared: Shared, members: aws.ec2.SecurityGroup, network: VpcIds, named: Named
) -> pulumi.Output[str]:
    """Create an FSx for Lustre in the nodes' subnet; another size replaces it."""
    deployment = shared.deployment or "scratch"
    files = aws.fsx.LustreFileSystem(
        "shared",
        subnet_ids=network.nodes,
        security_group_ids=[members.id],
        storage_capacity=shared.capacity_gib or 1200,
        deployment_type=DEPLOYMENTS[deployment],
        per_unit_storage_throughput=(
            (shared.throughput or 125) if deployment == "persistent" else None
        ),
        file_system_type_version=LUSTRE,
        tags=named.tags("shared"),
        # AWS grows one in place over hours, in steps, and never shrinks it.
        opts=named.options(replace_on=["storageCapacity", "perUnitStorageThroughput"]),
    )
    return pulumi.Output.concat(files.dns_name, "@tcp:/", files.mount_name)
