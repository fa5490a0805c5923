"""The AWS resource types of the program, without Pulumi's SDK for AWS.

Importing `pulumi_aws` takes a third of the CPU time of `gpuctl plan`: it loads all modules of a
service. The program needs a name and a few outputs per type. The tests compare every input of
every plan, the types, their outputs and the version with the SDK's classes (decision 263).
"""

import json
from typing import Any, ClassVar, Generic, TypeVar

import pulumi

from config.cluster.resolved import ENDS_TAG

VERSION = "7.51.1"
"""The version of Pulumi's AWS provider that the Pulumi engine loads."""

Inputs = dict[str, Any]
"""Nested inputs, with Pulumi's names."""

_T = TypeVar("_T")


def inputs(**values: Any) -> Inputs:
    """Return nested inputs with Pulumi's names: `from_port` is `fromPort`. None is left out."""
    return {_pulumi_name(name): value for name, value in values.items() if value is not None}


def _pulumi_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class _Output(Generic[_T]):
    """An output of a resource, which is read as an attribute."""

    def __set_name__(self, owner: "type[AwsResource]", name: str) -> None:
        """Add the output to those of the class."""
        self._name = _pulumi_name(name)
        owner.outputs = (*owner.outputs, self._name)

    def __get__(self, resource: "AwsResource", owner: "type[AwsResource]") -> "pulumi.Output[_T]":
        """Return the resource's output."""
        found: pulumi.Output[_T] = resource.__dict__[self._name]
        return found


class AwsResource(pulumi.CustomResource):
    """A resource with the type of its class; its inputs have Python's names."""

    pulumi_type: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, /, *, opts: pulumi.ResourceOptions, **values: Any) -> None:
        # An output that is no input has to be named, or the SDK drops its value.
        props = {**dict.fromkeys(self.outputs), **inputs(**values)}
        defaults = pulumi.ResourceOptions(version=VERSION)
        super().__init__(
            self.pulumi_type, name, props, pulumi.ResourceOptions.merge(defaults, opts)
        )


class Vpc(AwsResource):
    """A VPC."""

    pulumi_type = "aws:ec2/vpc:Vpc"


class Subnet(AwsResource):
    """A subnet of a VPC."""

    pulumi_type = "aws:ec2/subnet:Subnet"


class InternetGateway(AwsResource):
    """The way of a VPC's public subnets to the internet."""

    pulumi_type = "aws:ec2/internetGateway:InternetGateway"


class NatGateway(AwsResource):
    """The way of a VPC's private subnets to the internet."""

    pulumi_type = "aws:ec2/natGateway:NatGateway"


class RouteTable(AwsResource):
    """A route table with its routes."""

    pulumi_type = "aws:ec2/routeTable:RouteTable"


class RouteTableAssociation(AwsResource):
    """The use of a route table by a subnet."""

    pulumi_type = "aws:ec2/routeTableAssociation:RouteTableAssociation"


class Eip(AwsResource):
    """An Elastic IP address."""

    pulumi_type = "aws:ec2/eip:Eip"
    public_ip = _Output[str]()


class SecurityGroup(AwsResource):
    """A security group with its rules."""

    pulumi_type = "aws:ec2/securityGroup:SecurityGroup"


class KeyPair(AwsResource):
    """A key pair for ssh."""

    pulumi_type = "aws:ec2/keyPair:KeyPair"
    key_name = _Output[str]()


class PlacementGroup(AwsResource):
    """A placement group."""

    pulumi_type = "aws:ec2/placementGroup:PlacementGroup"
    name = _Output[str]()


class LaunchTemplate(AwsResource):
    """A launch template, the common part of the nodes."""

    pulumi_type = "aws:ec2/launchTemplate:LaunchTemplate"
    latest_version = _Output[float]()


class Instance(AwsResource):
    """An instance."""

    pulumi_type = "aws:ec2/instance:Instance"
    private_ip = _Output[str]()
    public_ip = _Output[str]()


class Role(AwsResource):
    """An IAM role."""

    pulumi_type = "aws:iam/role:Role"
    name = _Output[str]()


class RolePolicy(AwsResource):
    """A policy inside an IAM role."""

    pulumi_type = "aws:iam/rolePolicy:RolePolicy"


class InstanceProfile(AwsResource):
    """An instance profile, which gives instances a role."""

    pulumi_type = "aws:iam/instanceProfile:InstanceProfile"
    name = _Output[str]()


class EfsFileSystem(AwsResource):
    """An EFS file system."""

    pulumi_type = "aws:efs/fileSystem:FileSystem"
    dns_name = _Output[str]()


class EfsMountTarget(AwsResource):
    """An address of an EFS file system in a subnet."""

    pulumi_type = "aws:efs/mountTarget:MountTarget"


class LustreFileSystem(AwsResource):
    """An FSx for Lustre file system."""

    pulumi_type = "aws:fsx/lustreFileSystem:LustreFileSystem"
    dns_name = _Output[str]()
    mount_name = _Output[str]()


def provider(
    region: str, allowed_account_ids: list[str], max_retries: int | None = None
) -> pulumi.ProviderResource:
    """Return the provider of AWS in a region; it refuses accounts that are not allowed.

    Inputs that are no text are sent as JSON. What is not set here has the values of
    `pulumi_aws.Provider`: the region's name is not checked, the credentials are. The tag with the
    end of a machine is neither read nor removed: it is not the program's.
    """
    return pulumi.ProviderResource(
        "aws",
        "aws",
        inputs(
            region=region,
            allowed_account_ids=json.dumps(allowed_account_ids),
            max_retries=None if max_retries is None else json.dumps(max_retries),
            ignore_tags=json.dumps({"keys": [ENDS_TAG]}),
            skip_credentials_validation="false",
            skip_region_validation="true",
        ),
        pulumi.ResourceOptions(
            version=VERSION, additional_secret_outputs=["accessKey", "secretKey", "token"]
        ),
    )


def network_interface(
    filters: dict[str, str], aws: pulumi.ProviderResource
) -> "pulumi.Output[str]":
    """Return the id of the one network interface that has these values."""
    found: pulumi.Output[dict[str, Any]] = pulumi.runtime.invoke_output(
        "aws:ec2/getNetworkInterface:getNetworkInterface",
        {"filters": [{"name": name, "values": [value]} for name, value in filters.items()]},
        pulumi.InvokeOutputOptions(provider=aws, version=VERSION),
    )
    return found.apply(lambda interface: str(interface["id"]))
