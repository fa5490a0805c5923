"""The security groups, and the key pair for ssh to the nodes."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from config.cluster.resolved import Resolved
from infra.program.tags import Named
from infra.program.vpc import VpcIds

_WORLD = "0.0.0.0/0"


@dataclass(frozen=True)
class Access:
    """The security groups of the nodes and of the bastion, if any, and the cluster's key pair."""

    nodes: aws.ec2.SecurityGroup
    bastion: aws.ec2.SecurityGroup | None
    key: aws.ec2.KeyPair


def access(network: VpcIds, named: Named) -> Access:
    """Create the security groups and the key pair.

    The bastion accepts ssh from the caller's range, and the nodes accept it from the bastion.
    Without a bastion the nodes accept ssh from the caller's range. With Session Manager no port is
    open: the nodes' agents call AWS.

    Nodes may send each other every protocol: EFA traffic is not IP, and passes only between members
    of one group whose inbound and outbound rules name the group itself. Source: AWS, "Get started
    with EFA and NCCL", step 1 (EC2 User Guide, 2026-11-20).
    """
    resolved = named.resolved
    bastion = _bastion(network, named) if resolved.cluster.network.has_bastion else None
    source, ssh = _ssh_rules(resolved, bastion)
    nodes = aws.ec2.SecurityGroup(
        "nodes",
        name=named.name("nodes"),
        description=f"gpuctl {resolved.cluster.name}: nodes among themselves, {source}",
        vpc_id=network.vpc,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(
                description="nodes, EFA included", protocol="-1", from_port=0, to_port=0, self=True
            ),
            *ssh,
        ],
        egress=[
            aws.ec2.SecurityGroupEgressArgs(
                description="nodes, EFA included", protocol="-1", from_port=0, to_port=0, self=True
            ),
            _to_the_world(
                "to the world"
                if resolved.cluster.network.nodes_are_public or resolved.existing_network
                else "to the world through NAT"
            ),
        ],
        tags=named.tags("nodes"),
        opts=named.options(),
    )
    key = aws.ec2.KeyPair(
        "key",
        key_name=named.name(),
        public_key=resolved.public_key,
        tags=named.tags(),
        # The name is in use until the old key pair is deleted.
        opts=named.options(delete_first=True),
    )
    return Access(nodes=nodes, bastion=bastion, key=key)


def _ssh_rules(
    resolved: Resolved, bastion: aws.ec2.SecurityGroup | None
) -> tuple[str, list[aws.ec2.SecurityGroupIngressArgs]]:
    """Return the source of ssh connections to the nodes, as text and as rules."""
    if resolved.cluster.network.uses_session_manager:
        return "Session Manager", []
    if bastion is None:
        return "ssh from the caller", [_ssh_from_caller(resolved)]
    return "ssh from the bastion", [_ssh("ssh from the bastion", security_groups=[bastion.id])]


def _bastion(network: VpcIds, named: Named) -> aws.ec2.SecurityGroup:
    resolved = named.resolved
    return aws.ec2.SecurityGroup(
        "bastion",
        name=named.name("bastion"),
        description=f"gpuctl {resolved.cluster.name}: ssh from the caller to the bastion",
        vpc_id=network.vpc,
        ingress=[_ssh_from_caller(resolved)],
        egress=[_to_the_world("to the world")],
        tags=named.tags("bastion"),
        opts=named.options(),
    )


def _ssh_from_caller(resolved: Resolved) -> aws.ec2.SecurityGroupIngressArgs:
    return _ssh("ssh from the caller", cidr_blocks=[resolved.ssh_from])


def _ssh(
    description: str,
    *,
    cidr_blocks: list[str] | None = None,
    security_groups: list[pulumi.Input[str]] | None = None,
) -> aws.ec2.SecurityGroupIngressArgs:
    return aws.ec2.SecurityGroupIngressArgs(
        description=description,
        protocol="tcp",
        from_port=22,
        to_port=22,
        cidr_blocks=cidr_blocks,
        security_groups=security_groups,
    )


def _to_the_world(description: str) -> aws.ec2.SecurityGroupEgressArgs:
    return aws.ec2.SecurityGroupEgressArgs(
        description=description,
        protocol="-1",
        from_port=0,
        to_port=0,
        cidr_blocks=[_WORLD],
    )
