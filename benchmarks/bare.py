"""A cluster as a plain Pulumi program: what `benchmarks.fleet` compares gpuctl with.

Written as a person writes it who knows Pulumi and EFA: the resources of
`infra.program.cluster_program`, with nothing around them. `tests/benchmarks` holds both to the same
resources, so that the comparison stays one of equals.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pulumi import automation

from config.cluster.resolved import Resolved
from config.target import Target
from infra.program.subnets import carve
from infra.program.user_data import encode
from infra.pulumi_engine.workspace import EngineCommand

if TYPE_CHECKING:
    from infra.pulumi_engine.installation import Engine

with warnings.catch_warnings():
    # They warn of their own renamed classes, whether used or not.
    warnings.simplefilter("ignore", DeprecationWarning)
    import pulumi
    from pulumi_aws import ec2

    ec2.Instance  # noqa: B018  the module loads itself when it is first used

_WORLD = "0.0.0.0/0"


def stack(resolved: Resolved, target: Target, engine: "Engine", state: Path) -> automation.Stack:
    """A new stack of the program, whose backend is the folder `state`.

    The engine and the provider are gpuctl's; the rest is as Pulumi has it by default.
    """
    port = (target.provider_address or "").rpartition(":")[2]
    folder = state / "program"
    folder.mkdir(parents=True)
    made = automation.create_stack(
        "bare",
        project_name="bare",
        program=program(resolved),
        opts=automation.LocalWorkspaceOptions(
            work_dir=str(folder),
            pulumi_command=EngineCommand(engine),
            pulumi_home=str(state / "home"),
            env_vars={
                "PULUMI_SKIP_UPDATE_CHECK": "1",
                "PULUMI_BACKEND_URL": state.as_uri(),
                "PULUMI_CONFIG_PASSPHRASE": "bare",
                "PULUMI_DEBUG_PROVIDERS": f"aws:{port}",
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                **target.environment,
            },
        ),
    )
    made.set_config("aws:region", automation.ConfigValue(target.region))
    return made


def program(resolved: Resolved) -> Callable[[], None]:
    """The program; the values that a person would write into it are those of `resolved`."""

    def build() -> None:
        tags = resolved.tags
        vpc = ec2.Vpc(
            "vpc",
            cidr_block=resolved.cluster.network.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=tags,
        )
        public, private = _subnets(vpc, resolved)
        entry, inside = _groups(vpc, resolved)
        key = ec2.KeyPair("key", key_name="bare", public_key=resolved.public_key, tags=tags)
        bastion = ec2.Instance(
            "bastion",
            ami=resolved.bastion_image.id,
            instance_type=resolved.bastion_type,
            subnet_id=public.id,
            vpc_security_group_ids=[entry.id],
            associate_public_ip_address=True,
            key_name=key.key_name,
            user_data_base64=encode(resolved.bastion_user_data),
            metadata_options={"http_endpoint": "enabled", "http_tokens": "required"},
            root_block_device={"volume_type": "gp3", "encrypted": True},
            tags=tags,
        )
        template = _template(private, inside, key, resolved)
        nodes = [
            ec2.Instance(
                f"node{rank}",
                launch_template={"id": template.id, "version": template.latest_version.apply(str)},
                tags={**tags, "Name": f"node{rank}"},
            )
            for rank in range(resolved.cluster.nodes)
        ]
        pulumi.export("bastion", bastion.public_ip)
        pulumi.export("nodes", [node.private_ip for node in nodes])

    return build


def _subnets(vpc: ec2.Vpc, resolved: Resolved) -> tuple[ec2.Subnet, ec2.Subnet]:
    """The public and the private subnet, each with its route to the world."""
    tags, ranges = resolved.tags, carve(resolved.cluster.network.cidr)
    public, private = (
        ec2.Subnet(
            name,
            vpc_id=vpc.id,
            cidr_block=str(block),
            availability_zone=resolved.zone,
            tags=tags,
        )
        for name, block in (("public", ranges.public), ("private", ranges.private))
    )
    internet = ec2.InternetGateway("internet", vpc_id=vpc.id, tags=tags)
    address = ec2.Eip("nat", domain="vpc", tags=tags)
    nat = ec2.NatGateway(
        "nat",
        subnet_id=public.id,
        allocation_id=address.id,
        tags=tags,
        opts=pulumi.ResourceOptions(depends_on=[internet]),
    )
    for name, subnet, route in (
        ("public", public, {"cidr_block": _WORLD, "gateway_id": internet.id}),
        ("private", private, {"cidr_block": _WORLD, "nat_gateway_id": nat.id}),
    ):
        table = ec2.RouteTable(name, vpc_id=vpc.id, routes=[route], tags=tags)
        ec2.RouteTableAssociation(name, subnet_id=subnet.id, route_table_id=table.id)
    return public, private


def _groups(vpc: ec2.Vpc, resolved: Resolved) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup]:
    """Who may enter the bastion, and who the nodes."""
    everything = {"protocol": "-1", "from_port": 0, "to_port": 0}
    ssh = {"protocol": "tcp", "from_port": 22, "to_port": 22}
    entry = ec2.SecurityGroup(
        "bastion",
        name="bare-bastion",
        vpc_id=vpc.id,
        ingress=[{**ssh, "cidr_blocks": [resolved.ssh_from]}],
        egress=[{**everything, "cidr_blocks": [_WORLD]}],
        tags=resolved.tags,
    )
    inside = ec2.SecurityGroup(
        "nodes",
        name="bare-nodes",
        vpc_id=vpc.id,
        ingress=[{**everything, "self": True}, {**ssh, "security_groups": [entry.id]}],
        egress=[{**everything, "self": True}, {**everything, "cidr_blocks": [_WORLD]}],
        tags=resolved.tags,
    )
    return entry, inside


def _template(
    subnet: ec2.Subnet, group: ec2.SecurityGroup, key: ec2.KeyPair, resolved: Resolved
) -> ec2.LaunchTemplate:
    """What the nodes have in common; they lie close to each other."""
    near = ec2.PlacementGroup("nodes", name="bare", strategy="cluster", tags=resolved.tags)
    disk = {
        "volume_size": resolved.cluster.storage.root.gib,
        "volume_type": "gp3",
        "encrypted": "true",
    }
    return ec2.LaunchTemplate(
        "nodes",
        name="bare-nodes",
        instance_type=resolved.instance_type.name,
        image_id=resolved.image.id,
        key_name=key.key_name,
        network_interfaces=[
            {
                "network_card_index": interface.card,
                "device_index": interface.device,
                "interface_type": interface.type,
                "subnet_id": subnet.id,
                "security_groups": [group.id],
                "delete_on_termination": "true",
            }
            for interface in resolved.interfaces
        ],
        block_device_mappings=[{"device_name": resolved.image.root_device, "ebs": disk}],
        metadata_options={"http_endpoint": "enabled", "http_tokens": "required"},
        placement={"group_name": near.name},
        user_data=encode(resolved.user_data),
        tag_specifications=[
            {"resource_type": kind, "tags": resolved.tags}
            for kind in ("instance", "volume", "network-interface")
        ],
        tags=resolved.tags,
    )
