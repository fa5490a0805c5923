"""The security groups, and the key pair for ssh to the nodes."""

from dataclasses import dataclass

from config.cluster.resolved import Resolved
from infra.program import aws_resources as aws
from infra.program.tags import Named
from infra.program.vpc import VpcIds

_WORLD = "0.0.0.0/0"


@dataclass(frozen=True)
class Access:
    """The security groups of the nodes and of the bastion, if any, and the cluster's key pair."""

    nodes: aws.SecurityGroup
    bastion: aws.SecurityGroup | None
    key: aws.KeyPair


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
    nodes = aws.SecurityGroup(
        "nodes",
        name=named.name("nodes"),
        description=f"gpuctl {resolved.cluster.name}: nodes among themselves, {source}",
        vpc_id=network.vpc,
        ingress=[
            aws.inputs(
                description="nodes, EFA included", protocol="-1", from_port=0, to_port=0, self=True
            ),
            *ssh,
        ],
        egress=[
            aws.inputs(
                description="nodes, EFA included", protocol="-1", from_port=0, to_port=0, self=True
            ),
            _everything(
                "to the world"
                if resolved.cluster.network.nodes_are_public or resolved.existing_network
                else "to the world through NAT",
                cidr_blocks=[_WORLD],
            ),
        ],
        tags=named.tags("nodes"),
        opts=named.options(),
    )
    key = aws.KeyPair(
        "key",
        key_name=named.name(),
        public_key=resolved.public_key,
        tags=named.tags(),
        # The name is in use until the old key pair is deleted.
        opts=named.options(delete_first=True),
    )
    return Access(nodes=nodes, bastion=bastion, key=key)


def _ssh_rules(
    resolved: Resolved, bastion: aws.SecurityGroup | None
) -> tuple[str, list[aws.Inputs]]:
    """Return the source of ssh connections to the nodes, as text and as rules."""
    if resolved.cluster.network.uses_session_manager:
        return "Session Manager", []
    if bastion is None:
        return "ssh from the caller", [_ssh("ssh from the caller", cidr_blocks=[resolved.ssh_from])]
    return "ssh from the bastion", [_ssh("ssh from the bastion", security_groups=[bastion.id])]


def _bastion(network: VpcIds, named: Named) -> aws.SecurityGroup:
    resolved = named.resolved
    return aws.SecurityGroup(
        "bastion",
        name=named.name("bastion"),
        description=f"gpuctl {resolved.cluster.name}: ssh from the caller to the bastion",
        vpc_id=network.vpc,
        ingress=[_ssh("ssh from the caller", cidr_blocks=[resolved.ssh_from])],
        egress=[_everything("to the world", cidr_blocks=[_WORLD])],
        tags=named.tags("bastion"),
        opts=named.options(),
    )


def _ssh(description: str, **source: object) -> aws.Inputs:
    return aws.inputs(description=description, protocol="tcp", from_port=22, to_port=22, **source)


def _everything(description: str, **target: object) -> aws.Inputs:
    return aws.inputs(description=description, protocol="-1", from_port=0, to_port=0, **target)
