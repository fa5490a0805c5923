"""The Pulumi program of one cluster: all of its resources in the cloud."""

import pulumi
import pulumi_aws as aws

from config.cluster.resolved import ENDS_TAG, Resolved
from infra.fleet import OUTPUT, Claims, Fleet
from infra.program.instances import addresses, bastion, launch_template, nodes, placement_group
from infra.program.security_groups import Access, access
from infra.program.shared_storage import storage
from infra.program.tags import Named
from infra.program.vpc import VpcIds, network

SPOT_ATTEMPTS = 5
"""The tries of a request for a cluster of spot instances; the provider's own default is 25.

The provider also retries InsufficientInstanceCapacity, which takes about 50 minutes with 25 tries
(terraform-provider-aws, internal/service/ec2/service_package.go, and its issue 43193, 2026-11-22).
With 5 it takes at most 15 seconds, and the next zone follows. Other clusters keep 25: their
capacity is reserved before the launch, and so many machines at once are throttled."""


def _named(resolved: Resolved) -> Named:
    provider = aws.Provider(
        "aws",
        region=resolved.region,
        # With another account's credentials Pulumi must neither change this cluster nor copy it.
        allowed_account_ids=[resolved.account],
        max_retries=SPOT_ATTEMPTS if resolved.cluster.capacity.type == "spot" else None,
        # Each machine sets this tag itself: it is neither read nor removed.
        ignore_tags=aws.ProviderIgnoreTagsArgs(keys=[ENDS_TAG]),
    )
    return Named(resolved, provider)


def group(resolved: Resolved, fleet: Fleet | None) -> None:
    """Register the placement group alone: capacity is claimed in it.

    A new cluster's other resources come later, because its subnets are created in the zone of the
    claim. The stack of another cluster keeps its `fleet`.
    """
    placement_group(_named(resolved))
    if fleet is not None:
        pulumi.export(OUTPUT, fleet.model_dump(mode="json"))


def surroundings(resolved: Resolved) -> None:
    """Register all resources but the machines and their addresses, which must not exist.

    They are created before capacity is claimed if some take minutes: a claim costs what its nodes
    cost.
    """
    _surroundings(_named(resolved), moves=True)


def _surroundings(
    named: Named, *, moves: bool = False
) -> tuple[VpcIds, Access, aws.ec2.LaunchTemplate]:
    """Register them; return the network, the access to it, and the nodes' launch template."""
    net = network(named, moves=moves)
    who = access(net, named)
    return net, who, launch_template(net, who, named, storage(net, named))


def whole_cluster(resolved: Resolved, claims: Claims) -> None:
    """Register all resources of the cluster, and export its `Fleet`.

    New nodes are launched into their `claims`.
    """
    named = _named(resolved)
    net, who, template = _surroundings(named)
    entry = bastion(net, who, named)
    fleet = nodes(net, template, named, claims)
    public: list[pulumi.Input[str]] = [
        address.public_ip for address in addresses(fleet, named)
    ] or [""] * len(fleet)
    pulumi.export(
        OUTPUT,
        {
            "vpc_id": net.vpc,
            "subnet_id": net.nodes,
            "bastion_id": entry.id if entry else "",
            "bastion_address": entry.public_ip if entry else "",
            "nodes": [
                {
                    "name": name,
                    "instance_id": node.id,
                    "private_ip": node.private_ip,
                    "public_ip": address,
                }
                for name, node, address in zip(resolved.node_names, fleet, public, strict=True)
            ],
        },
    )
