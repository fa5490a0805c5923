"""A cluster as a plain Pulumi program: what `benchmarks.fleet` compares gpuctl with.

    python -m benchmarks.bare plan|up VALUES.json STATE

Written as a person writes it who knows Pulumi and EFA: the resources of
`infra.program.cluster_program`, with nothing around them. The values that a person would write into
it are in a file. `tests/benchmarks` holds both to the same resources, so that the comparison stays
one of equals.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import automation

_WORLD = "0.0.0.0/0"


def main() -> None:
    """Preview the program, and with `up` carry it out; the engine is the `pulumi` on PATH."""
    what, values, state = sys.argv[1:]
    made = stack(json.loads(Path(values).read_text()), Path(state))
    made.preview()
    if what == "up":
        made.up()


def stack(values: dict[str, Any], state: Path) -> automation.Stack:
    """Create the program's stack, whose backend is the folder `state`."""
    made = automation.create_or_select_stack(
        "bare",
        project_name="bare",
        program=program(values),
        opts=automation.LocalWorkspaceOptions(
            pulumi_home=str(state / "home"),
            env_vars={
                "PULUMI_SKIP_UPDATE_CHECK": "1",
                "PULUMI_BACKEND_URL": state.as_uri(),
                "PULUMI_CONFIG_PASSPHRASE": "bare",
                **values["environment"],
            },
        ),
    )
    made.set_config("aws:region", automation.ConfigValue(values["region"]))
    return made


def program(values: dict[str, Any]) -> Callable[[], None]:
    """Return the program."""

    def build() -> None:
        tags = values["tags"]
        vpc = aws.ec2.Vpc(
            "vpc",
            cidr_block=values["cidr"],
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=tags,
        )
        public, private = _subnets(vpc, values)
        entry, inside = _groups(vpc, values)
        key = aws.ec2.KeyPair("key", key_name="bare", public_key=values["public_key"], tags=tags)
        bastion = aws.ec2.Instance(
            "bastion",
            ami=values["bastion_image"],
            instance_type=values["bastion_type"],
            subnet_id=public.id,
            vpc_security_group_ids=[entry.id],
            associate_public_ip_address=True,
            key_name=key.key_name,
            user_data_base64=values["bastion_user_data"],
            metadata_options=aws.ec2.InstanceMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required"
            ),
            root_block_device=aws.ec2.InstanceRootBlockDeviceArgs(
                volume_type="gp3", encrypted=True
            ),
            tags=tags,
        )
        template = _template(private, inside, key, values)
        nodes = [
            aws.ec2.Instance(
                f"node{rank}",
                launch_template=aws.ec2.InstanceLaunchTemplateArgs(
                    id=template.id, version=template.latest_version.apply(str)
                ),
                tags={**tags, "Name": f"node{rank}"},
            )
            for rank in range(values["nodes"])
        ]
        pulumi.export("bastion", bastion.public_ip)
        pulumi.export("nodes", [node.private_ip for node in nodes])

    return build


def _subnets(vpc: aws.ec2.Vpc, values: dict[str, Any]) -> tuple[aws.ec2.Subnet, aws.ec2.Subnet]:
    """The public and the private subnet, each with its route to the world."""
    tags = values["tags"]
    public, private = (
        aws.ec2.Subnet(
            name,
            vpc_id=vpc.id,
            cidr_block=block,
            availability_zone=values["zone"],
            tags=tags,
        )
        for name, block in (("public", values["public"]), ("private", values["private"]))
    )
    internet = aws.ec2.InternetGateway("internet", vpc_id=vpc.id, tags=tags)
    address = aws.ec2.Eip("nat", domain="vpc", tags=tags)
    nat = aws.ec2.NatGateway(
        "nat",
        subnet_id=public.id,
        allocation_id=address.id,
        tags=tags,
        opts=pulumi.ResourceOptions(depends_on=[internet]),
    )
    for name, subnet, route in (
        ("public", public, aws.ec2.RouteTableRouteArgs(cidr_block=_WORLD, gateway_id=internet.id)),
        ("private", private, aws.ec2.RouteTableRouteArgs(cidr_block=_WORLD, nat_gateway_id=nat.id)),
    ):
        table = aws.ec2.RouteTable(name, vpc_id=vpc.id, routes=[route], tags=tags)
        aws.ec2.RouteTableAssociation(name, subnet_id=subnet.id, route_table_id=table.id)
    return public, private


def _groups(
    vpc: aws.ec2.Vpc, values: dict[str, Any]
) -> tuple[aws.ec2.SecurityGroup, aws.ec2.SecurityGroup]:
    """Who may enter the bastion, and who the nodes."""
    entry = aws.ec2.SecurityGroup(
        "bastion",
        name="bare-bastion",
        vpc_id=vpc.id,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(
                protocol="tcp", from_port=22, to_port=22, cidr_blocks=[values["ssh_from"]]
            )
        ],
        egress=[
            aws.ec2.SecurityGroupEgressArgs(
                protocol="-1", from_port=0, to_port=0, cidr_blocks=[_WORLD]
            )
        ],
        tags=values["tags"],
    )
    inside = aws.ec2.SecurityGroup(
        "nodes",
        name="bare-nodes",
        vpc_id=vpc.id,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(protocol="-1", from_port=0, to_port=0, self=True),
            aws.ec2.SecurityGroupIngressArgs(
                protocol="tcp", from_port=22, to_port=22, security_groups=[entry.id]
            ),
        ],
        egress=[
            aws.ec2.SecurityGroupEgressArgs(protocol="-1", from_port=0, to_port=0, self=True),
            aws.ec2.SecurityGroupEgressArgs(
                protocol="-1", from_port=0, to_port=0, cidr_blocks=[_WORLD]
            ),
        ],
        tags=values["tags"],
    )
    return entry, inside


def _template(
    subnet: aws.ec2.Subnet,
    group: aws.ec2.SecurityGroup,
    key: aws.ec2.KeyPair,
    values: dict[str, Any],
) -> aws.ec2.LaunchTemplate:
    """What the nodes have in common; they lie close to each other."""
    near = aws.ec2.PlacementGroup("nodes", name="bare", strategy="cluster", tags=values["tags"])
    disk = aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_size=values["gib"], volume_type="gp3", encrypted="true"
    )
    return aws.ec2.LaunchTemplate(
        "nodes",
        name="bare-nodes",
        instance_type=values["instance_type"],
        image_id=values["image"],
        key_name=key.key_name,
        network_interfaces=[
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=interface["card"],
                device_index=interface["device"],
                interface_type=interface["type"],
                subnet_id=subnet.id,
                security_groups=[group.id],
                delete_on_termination="true",
            )
            for interface in values["interfaces"]
        ],
        block_device_mappings=[
            aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=values["root_device"], ebs=disk
            )
        ],
        metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled", http_tokens="required"
        ),
        placement=aws.ec2.LaunchTemplatePlacementArgs(group_name=near.name),
        user_data=values["user_data"],
        tag_specifications=[
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=values["tags"])
            for kind in ("instance", "volume", "network-interface")
        ],
        tags=values["tags"],
    )


if __name__ == "__main__":
    main()
