"""The instances: a bastion, and the nodes with one launch template in one placement group."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from config.cluster.resolved import Interface, Resolved
from infra.fleet import Claims
from infra.program.node_role import profile_name
from infra.program.security_groups import Access
from infra.program.shared_storage import SharedStorage
from infra.program.tags import Named
from infra.program.user_data import encode, insert_mount_source
from infra.program.vpc import VpcIds

_READ_USER_DATA = ("userData", "userDataBase64")
"""What the provider reads from EC2 although it came with the launch template. Every preview would
show it as removed (https://github.com/pulumi/pulumi-aws/issues/3449 and
https://github.com/hashicorp/terraform-provider-aws/issues/30825, 2026-11-26)."""


def bastion(network: VpcIds, access: Access, named: Named) -> aws.ec2.Instance | None:
    """Create the bastion, the public machine through which people reach the nodes, if any."""
    resolved = named.resolved
    if access.bastion is None:
        return None
    return aws.ec2.Instance(
        "bastion",
        ami=resolved.bastion_image.id,
        instance_type=resolved.bastion_type,
        subnet_id=network.public,
        vpc_security_group_ids=[access.bastion.id],
        associate_public_ip_address=True,
        key_name=access.key.key_name,
        user_data_base64=encode(resolved.bastion_user_data),
        user_data_replace_on_change=True,
        instance_initiated_shutdown_behavior="terminate",
        metadata_options=_metadata_options(),
        root_block_device=aws.ec2.InstanceRootBlockDeviceArgs(
            volume_type="gp3", encrypted=True, delete_on_termination=True
        ),
        tags=named.tags("bastion"),
        volume_tags=named.tags("bastion"),
        opts=named.options(network.public_ready),
    )


def nodes(
    network: VpcIds, template: aws.ec2.LaunchTemplate, named: Named, claims: Claims
) -> tuple[aws.ec2.Instance, ...]:
    """Create one instance per node, and return them in rank order.

    They differ only in their names and claims, so that adding or removing a node changes no other.

    A node keeps the version of the template that it was launched with, until somebody names it to
    be replaced: the capacity that it would give back may not come again. What EC2 can change on an
    instance that runs is therefore an input of the instance, and not of the template. The security
    groups are not: a launch takes none in addition to those of the template's interfaces, and the
    provider would change them on one interface alone (resourceInstanceUpdate in
    hashicorp/terraform-provider-aws, internal/service/ec2/ec2_instance.go, 2026-11-26).
    """
    launch = aws.ec2.InstanceLaunchTemplateArgs(
        id=template.id, version=template.latest_version.apply(lambda number: str(int(number)))
    )
    return tuple(
        aws.ec2.Instance(
            name,
            launch_template=launch,
            capacity_reservation_specification=_claim(name, named.resolved, claims),
            metadata_options=_metadata_options(),
            tags=named.tags(name),
            volume_tags=named.tags(name),
            # GPU capacity is scarce and quotas are tight: the old machine is removed first. A node
            # that runs needs no claim.
            opts=named.options(
                network.nodes_ready,
                delete_first=True,
                ignore=("launchTemplate", "capacityReservationSpecification", *_READ_USER_DATA),
                minutes=_minutes(named.resolved),
            ),
        )
        for name in named.resolved.node_names
    )


def _claim(
    node: str, resolved: Resolved, claims: Claims
) -> pulumi.Input[aws.ec2.InstanceCapacityReservationSpecificationArgs] | None:
    """Return the claim that the node is launched into, by its id: unknown in a preview.

    None for a node that replaces another one, and for capacity of another kind. The claim is not in
    the launch template, which would get a new version with each claim.
    """
    if resolved.cluster.capacity.type != "on-demand":
        return None
    if pulumi.runtime.is_dry_run():
        unknown: Any = pulumi.UNKNOWN
        return pulumi.Output.from_input(unknown)
    if node not in claims:
        return None
    target = aws.ec2.InstanceCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=claims[node]
    )
    return aws.ec2.InstanceCapacityReservationSpecificationArgs(capacity_reservation_target=target)


def _metadata_options() -> aws.ec2.InstanceMetadataOptionsArgs:
    return aws.ec2.InstanceMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=1,
    )


def _minutes(resolved: Resolved) -> int:
    """Return how many minutes a node may take until it runs, and until it has ended.

    The provider's own limits are 10 and 20 minutes (registry.terraform.io/providers/hashicorp/aws,
    aws_instance, Timeouts, 2026-11-22). Large GPU instances and bare metal take longer.
    """
    return 60 if ".metal" in resolved.instance_type.name else 30


def addresses(nodes: Sequence[aws.ec2.Instance], named: Named) -> tuple[aws.ec2.Eip, ...]:
    """Create an Elastic IP on the primary interface of each node if nodes are public, else none.

    AWS assigns no public address to an instance with several interfaces
    ("InvalidParameterCombination: The associatePublicIPAddress parameter cannot be specified when
    launching with multiple network interfaces", 2026-11-20).
    """
    if not named.resolved.cluster.network.nodes_are_public:
        return ()
    return tuple(
        aws.ec2.Eip(
            name,
            domain="vpc",
            network_interface=_primary_interface(node, named),
            tags=named.tags(name),
            opts=named.options(),
        )
        for name, node in zip(named.resolved.node_names, nodes, strict=True)
    )


def _primary_interface(node: aws.ec2.Instance, named: Named) -> pulumi.Output[str]:
    """Return the id of the interface that has the node's private address.

    `primary_network_interface_id` may be another one: the provider takes the last interface with
    device index 0, and each card of a node has one (resourceInstanceUpdate in
    hashicorp/terraform-provider-aws, internal/service/ec2/ec2_instance.go, 2026-11-22).
    """

    def find(instance_id: str, private_ip: str) -> pulumi.Output[str]:
        filters = {
            "attachment.instance-id": instance_id,
            "addresses.private-ip-address": private_ip,
        }
        return aws.ec2.get_network_interface_output(
            filters=[
                aws.ec2.GetNetworkInterfaceFilterArgs(name=name, values=[value])
                for name, value in filters.items()
            ],
            opts=pulumi.InvokeOutputOptions(provider=named.provider),
        ).id

    # Called with outputs, the function would lose the dependency on the node in a preview, and the
    # Pulumi engine would find that the plan is violated.
    return pulumi.Output.all(node.id, node.private_ip).apply(lambda known: find(*known))


def launch_template(
    network: VpcIds, access: Access, named: Named, storage: SharedStorage | None = None
) -> aws.ec2.LaunchTemplate:
    """Create the nodes' launch template, and the placement group and role that it names."""
    resolved = named.resolved
    volume = resolved.cluster.storage.root
    groups = [access.nodes.id, *(storage.groups if storage else ())]
    root = aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_size=volume.gib,
        iops=volume.iops,
        throughput=volume.throughput,
        volume_type="gp3",
        encrypted="true",
        delete_on_termination="true",
    )
    return aws.ec2.LaunchTemplate(
        "nodes",
        name=named.name("nodes"),
        update_default_version=True,
        instance_type=resolved.instance_type.name,
        image_id=resolved.image.id,
        key_name=access.key.key_name,
        iam_instance_profile=_profile(named),
        network_interfaces=_interfaces(resolved.interfaces, network, groups),
        block_device_mappings=[
            aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=resolved.image.root_device, ebs=root
            )
        ],
        instance_initiated_shutdown_behavior="terminate",
        instance_market_options=_market(resolved),
        capacity_reservation_specification=_reservation(resolved),
        placement=_placement(named),
        user_data=_user_data(resolved, storage),
        tag_specifications=[
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=named.tags("node"))
            for kind in _tagged_at_launch(resolved)
        ],
        tags=named.tags("nodes"),
        opts=named.options(),
    )


def _tagged_at_launch(resolved: Resolved) -> tuple[str, ...]:
    """Return the kinds of resources that a launch makes and that only the template can tag.

    Without the tag the policy allows nobody to cancel a spot request (`gpuctl iam-policy`).
    """
    is_spot = resolved.cluster.capacity.type == "spot"
    return ("network-interface", *(("spot-instances-request",) if is_spot else ()))


def _profile(named: Named) -> aws.ec2.LaunchTemplateIamInstanceProfileArgs | None:
    name = profile_name(named)
    return None if name is None else aws.ec2.LaunchTemplateIamInstanceProfileArgs(name=name)


def _user_data(resolved: Resolved, storage: SharedStorage | None) -> pulumi.Input[str]:
    """Return the nodes' user data; with the source of the shared file system once it is known."""
    text, sent = resolved.user_data, resolved.sent
    if storage is None:
        return encode(text, sent)
    return storage.source.apply(lambda source: encode(insert_mount_source(text, source), sent))


def _interfaces(
    layout: tuple[Interface, ...], network: VpcIds, groups: Sequence[pulumi.Input[str]]
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=interface.card,
            device_index=interface.device,
            interface_type=interface.type,
            subnet_id=network.nodes,
            security_groups=list(groups),
            associate_public_ip_address="false",
            delete_on_termination="true",
        )
        for interface in layout
    ]


def _market(resolved: Resolved) -> aws.ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    """Return the options for spot instances, which AWS may terminate, or for a capacity block.

    None for on-demand instances.
    """
    kind = resolved.cluster.capacity.type
    if kind == "capacity-block":
        return aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
    if kind != "spot":
        return None
    return aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(
        market_type="spot",
        spot_options=aws.ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgs(
            spot_instance_type="one-time", instance_interruption_behavior="terminate"
        ),
    )


def _placement(named: Named) -> aws.ec2.LaunchTemplatePlacementArgs | None:
    """Return the placement group of the reservation, or else the cluster's, or None."""
    reservation = named.resolved.reservation
    if reservation is not None and reservation.group:
        return aws.ec2.LaunchTemplatePlacementArgs(group_name=reservation.group)
    group = placement_group(named)
    return None if group is None else aws.ec2.LaunchTemplatePlacementArgs(group_name=group.name)


def placement_group(named: Named) -> aws.ec2.PlacementGroup | None:
    """Create the cluster's placement group, which puts its members close to each other.

    None if the file excludes it, and for a reservation: reserved capacity that is not in the group
    is not available in it (aws-samples, parallelcluster README: "placement groups may conflict with
    the placement group assigned to your ODCR/CB and cause ICE", 2026-11-20).
    """
    resolved = named.resolved
    if resolved.cluster.placement.strategy == "none" or resolved.reservation is not None:
        return None
    return aws.ec2.PlacementGroup(
        "nodes", name=named.name(), strategy="cluster", tags=named.tags(), opts=named.options()
    )


def _reservation(
    resolved: Resolved,
) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """Return the user's reservation by its id; None for a claim, which each node names itself."""
    if resolved.reservation is None:
        return None
    target = aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=resolved.reservation.id
    )
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=target
    )
