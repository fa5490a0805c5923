"""The Pulumi program: what exists in the cloud for one cluster."""

import warnings
from collections.abc import Callable

from config.resolved import Resolved

OUTPUT = "fleet"
"""The stack's one output: `infra.fleet.Fleet` as a mapping."""


def program(resolved: Resolved) -> Callable[[], None]:
    """The program for Pulumi's Automation API; all of its resources are `resolved`'s."""

    def build() -> None:
        # Imported when a program runs and not before: the AWS classes take half a second.
        with warnings.catch_warnings():
            # They warn of their own renamed classes, whether used or not.
            warnings.simplefilter("ignore", DeprecationWarning)
            import pulumi
            import pulumi_aws

            from infra.access import access
            from infra.machines import bastion, nodes
            from infra.naming import Named
            from infra.network import network

        provider = pulumi_aws.Provider(
            "aws",
            region=resolved.region,
            # Credentials of another account must not touch this cluster, nor make a second one.
            allowed_account_ids=[resolved.account],
        )
        named = Named(resolved, provider)
        net = network(named)
        who = access(net, named)
        entry = bastion(net, who, named)
        fleet = nodes(net, who, named)
        pulumi.export(
            OUTPUT,
            {
                "vpc_id": net.vpc.id,
                "subnet_id": net.private.id,
                "bastion_id": entry.id,
                "bastion_address": entry.public_ip,
                "nodes": [
                    {"name": name, "instance_id": node.id, "private_ip": node.private_ip}
                    for name, node in zip(resolved.node_names, fleet, strict=True)
                ],
            },
        )

    return build
