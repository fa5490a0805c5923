"""The resource types that the program uses, by Pulumi's names."""

from lab.provider.compute import Instance, PlacementGroup
from lab.provider.file_system_types import FileSystem, LustreFileSystem, MountTarget
from lab.provider.iam_types import InstanceProfile, Role, RolePolicy
from lab.provider.launch_template import LaunchTemplate
from lab.provider.resource import Resource
from lab.provider.routes import RouteTable, RouteTableAssociation
from lab.provider.security import KeyPair, SecurityGroup
from lab.provider.vpc_types import Eip, InternetGateway, NatGateway, Subnet, Vpc

TYPES: dict[str, type[Resource]] = {
    kind.token: kind
    for kind in (
        Vpc,
        Subnet,
        InternetGateway,
        Eip,
        NatGateway,
        RouteTable,
        RouteTableAssociation,
        SecurityGroup,
        KeyPair,
        PlacementGroup,
        FileSystem,
        MountTarget,
        LustreFileSystem,
        Role,
        RolePolicy,
        InstanceProfile,
        LaunchTemplate,
        Instance,
    )
}
