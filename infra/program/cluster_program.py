"""The Pulumi program of one cluster: all of its resources in the cloud."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from config.cluster.resolved import Resolved

if TYPE_CHECKING:
    from infra.program.tags import Named

OUTPUT = "fleet"
"""The stack's one output: `infra.fleet.Fleet` as a mapping."""


SPOT_ATTEMPTS = 5
"""The tries of a request for a cluster of spot instances; the provider's own default is 25.

The provider also retries InsufficientInstanceCapacity, which takes about 50 minutes with 25 tries
(terraform-provider-aws, internal/service/ec2/service_package.go, and its issue 43193, 2026-11-22).
With 5 it takes at most 15 seconds, and the next zone follows. Other clusters keep 25: their
capacity is reserved before the launch, and so many machines at once are throttled."""


def load_classes() -> None:
    """Import the AWS classes, which takes half a second, before a program needs them."""
    with warnings.catch_warnings():
        # pulumi_aws warns of its renamed classes even if nobody uses them.
        warnings.simplefilter("ignore", DeprecationWarning)
        import infra.program.instances
        import infra.program.security_groups
        import infra.program.shared_storage
        import infra.program.vpc  # noqa: F401


def first_step(resolved: Resolved) -> Callable[[], None]:
    """Return the program of a cluster that has its placement group and nothing else.

    The other resources come later: capacity is claimed in the group, and the subnets are created in
    the zone of the claim.
    """

    def build() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from infra.program.instances import placement_group

        placement_group(_named(resolved))

    return build


def _named(resolved: Resolved) -> "Named":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import pulumi_aws

        from infra.program.tags import Named

    provider = pulumi_aws.Provider(
        "aws",
        region=resolved.region,
        # With another account's credentials Pulumi must neither change this cluster nor copy it.
        allowed_account_ids=[resolved.account],
        max_retries=SPOT_ATTEMPTS if resolved.cluster.capacity.type == "spot" else None,
    )
    return Named(resolved, provider)


def program(resolved: Resolved) -> Callable[[], None]:
    """Return the program of the whole cluster for Pulumi's Automation API."""

    def build() -> None:
        # Imported only when a program runs: the AWS classes take half a second.
        with warnings.catch_warnings():
            # pulumi_aws warns of its renamed classes even if nobody uses them.
            warnings.simplefilter("ignore", DeprecationWarning)
            import pulumi

            from infra.program.instances import addresses, bastion, nodes
            from infra.program.security_groups import access
            from infra.program.shared_storage import storage
            from infra.program.vpc import network

        named = _named(resolved)
        net = network(named)
        who = access(net, named)
        entry = bastion(net, who, named)
        fleet = nodes(net, who, named, storage(net, named))
        public = [address.public_ip for address in addresses(fleet, named)] or [""] * len(fleet)
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

    return build
