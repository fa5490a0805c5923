"""The tags that others add to a cluster's resources, such as those of a company's policy.

`up` and `heal` leave them alone: the program declares on each resource the tags of others that it
has. The provider's option `ignore_tags` would not do: Pulumi refreshes with the provider's options
of the last `up`, so that a new key would be removed once, and tags of an instance's volumes are not
ignored (https://github.com/hashicorp/terraform-provider-aws/issues/29182, 2026-11-26).
"""

from collections.abc import Mapping

from config.cluster.resolved import Resolved
from config.target import Target
from infra.stack.changes import INSTANCE
from infra.stack.stack import Stack
from provision.aws.resources import Resource, find_all
from provision.state.record import ClusterRecord

_TYPES: Mapping[str, str] = {
    "EFS file system": "aws:efs/fileSystem:FileSystem",
    "FSx file system": "aws:fsx/lustreFileSystem:LustreFileSystem",
    "IAM role": "aws:iam/role:Role",
    "NAT gateway": "aws:ec2/natGateway:NatGateway",
    "VPC": "aws:ec2/vpc:Vpc",
    "elastic IP": "aws:ec2/eip:Eip",
    "instance": INSTANCE,
    "instance profile": "aws:iam/instanceProfile:InstanceProfile",
    "internet gateway": "aws:ec2/internetGateway:InternetGateway",
    "key pair": "aws:ec2/keyPair:KeyPair",
    "launch template": "aws:ec2/launchTemplate:LaunchTemplate",
    "placement group": "aws:ec2/placementGroup:PlacementGroup",
    "route table": "aws:ec2/routeTable:RouteTable",
    "security group": "aws:ec2/securityGroup:SecurityGroup",
    "subnet": "aws:ec2/subnet:Subnet",
}
"""Pulumi's types of the kinds of resources that the program creates."""


def is_foreign(resolved: Resolved, key: str) -> bool:
    """Return whether a tag with this key is neither gpuctl's, nor the file's, nor AWS's own.

    A key that gpuctl has yet to remove is not foreign. Nobody may change tags that begin with
    `aws:` (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html, 2026-11-26).
    """
    own = {*resolved.tags, *resolved.former_tags, "Name"}
    return key not in own and not key.lower().startswith(("aws:", "gpuctl:"))


def existing_tags(
    resolved: Resolved | None, target: Target, stack: Stack
) -> dict[str, dict[str, str]]:
    """Return all tags of the cluster's resources in AWS, by their place in `foreign_tags`.

    `resolved` is the cluster as its record has it. There are none for None, a cluster without a
    record: nothing of it exists yet.
    """
    if resolved is None:
        return {}
    placed = resolved.model_copy(update={"former_tags": ()})
    resources = [
        resource
        for resource in find_all(target, placed.cluster.name, cluster_id=placed.id or None)
        if foreign_tags(placed, resource.tags)
    ]
    names = stack.names() if resources else {}
    tags = {_place(resource, names): resource.tags for resource in resources}
    return {place: tags[place] for place in sorted(filter(None, tags))}


def keep_foreign_tags(
    resolved: Resolved, before: ClusterRecord | None, existing: Mapping[str, Mapping[str, str]]
) -> Resolved:
    """Return the cluster with the tags that others added to its resources (`existing_tags`).

    A tag of the file of the last `up` that is not in the file any more is gpuctl's, and `up`
    removes it. After an `up` that failed, the same holds for the files before.
    """
    if before is None:
        return resolved
    former = {*before.resolved.tags}
    if before.status != "ready":
        former |= {*before.resolved.former_tags}
    former -= resolved.tags.keys()
    resolved = resolved.model_copy(update={"former_tags": tuple(sorted(former))})
    return _with_foreign_tags(resolved, existing)


def refresh_foreign_tags(resolved: Resolved, target: Target, stack: Stack) -> Resolved:
    """Return the cluster with the tags that its resources have from others now.

    A policy tags resources as soon as they exist, also while `up` still creates others.
    """
    return _with_foreign_tags(resolved, existing_tags(resolved, target, stack))


def _with_foreign_tags(resolved: Resolved, existing: Mapping[str, Mapping[str, str]]) -> Resolved:
    kept = {place: foreign_tags(resolved, tags) for place, tags in existing.items()}
    kept = {place: tags for place, tags in kept.items() if tags}
    return resolved.model_copy(update={"foreign_tags": kept})


def foreign_tags(resolved: Resolved, tags: Mapping[str, str]) -> dict[str, str]:
    """Return those of the tags that others added, by key."""
    return {key: value for key, value in sorted(tags.items()) if is_foreign(resolved, key)}


def _place(resource: Resource, names: Mapping[tuple[str, str], str]) -> str | None:
    """Return the resource and its property as in `Resolved.foreign_tags`; None if it has none.

    A volume's tags are a property of the instance to which it is attached.
    """
    if resource.kind == "volume":
        for attachment in resource.attributes.get("Attachments", ()):
            if name := names.get((INSTANCE, attachment.get("InstanceId", ""))):
                return f"{INSTANCE} {name} volume_tags"
        return None
    kind = _TYPES.get(resource.kind, "")
    name = names.get((kind, resource.id))
    return f"{kind} {name} tags" if name else None
