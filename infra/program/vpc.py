"""The cluster's network: a VPC with a public and a private subnet in one zone.

Nodes have no public address: they download through a NAT gateway, and people use ssh through the
bastion; both are in the public subnet. If each node has an Elastic IP, the nodes' subnet is the
public one, and there is neither NAT gateway nor bastion. In an existing network nothing of this is
created.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.program.subnets import carve
from infra.program.tags import Named


@dataclass(frozen=True)
class VpcIds:
    """The ids of a VPC, of the nodes' subnet in it, and of the bastion's, which may be the same.

    A subnet reaches the internet when all resources of its `_ready` exist; the tuple is empty in an
    existing network.
    """

    vpc: pulumi.Input[str]
    public: pulumi.Input[str]
    nodes: pulumi.Input[str]
    public_ready: tuple[pulumi.Resource, ...] = ()
    nodes_ready: tuple[pulumi.Resource, ...] = ()


def network(named: Named, *, moves: bool = False) -> VpcIds:
    """Return the existing network, or create the VPC, its subnets and its routes.

    With `moves` nothing runs in the subnets: in another zone they are deleted first, because no two
    subnets of a VPC may have the same range.
    """
    existing = named.resolved.existing_network
    if existing is not None:
        nodes = existing.subnets[named.resolved.zone]
        return VpcIds(existing.vpc, existing.bastion_subnet, nodes)
    cidr = named.resolved.cluster.network.cidr
    vpc = aws.ec2.Vpc(
        "vpc",
        cidr_block=cidr,
        enable_dns_support=True,
        enable_dns_hostnames=True,
        tags=named.tags(),
        opts=named.options(),
    )
    ranges = carve(cidr)
    is_direct = named.resolved.cluster.network.nodes_are_public
    public = _subnet(
        "public", str(ranges.private if is_direct else ranges.public), vpc, named, moves
    )
    internet = aws.ec2.InternetGateway(
        "internet",
        vpc_id=vpc.id,
        tags=named.tags("internet"),
        # AWS does not detach a gateway while public addresses use it. A new VPC therefore gets a
        # new gateway, and the old one is deleted after everything in the old VPC.
        opts=named.options(replace_on=["vpcId"]),
    )
    public_route = aws.ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", gateway_id=internet.id)
    public_ready = _routed("public", public, public_route, vpc, named)
    if is_direct:
        return VpcIds(vpc.id, public.id, public.id, (public_ready,), (public_ready,))
    private = _subnet("private", str(ranges.private), vpc, named, moves)
    nat = _nat(public, internet, public_ready, named)
    private_route = aws.ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", nat_gateway_id=nat.id)
    private_ready = _routed("private", private, private_route, vpc, named)
    return VpcIds(vpc.id, public.id, private.id, (public_ready,), (private_ready,))


def _nat(
    public: aws.ec2.Subnet,
    internet: aws.ec2.InternetGateway,
    public_ready: pulumi.Resource,
    named: Named,
) -> aws.ec2.NatGateway:
    """Create the NAT gateway, which lets machines without a public address use the internet."""
    address = aws.ec2.Eip(
        "nat", domain="vpc", tags=named.tags("nat"), opts=named.options([internet])
    )
    return aws.ec2.NatGateway(
        "nat",
        subnet_id=public.id,
        allocation_id=address.id,
        tags=named.tags("nat"),
        # The address is in use until the old gateway is deleted.
        opts=named.options([public_ready], delete_first=True),
    )


def _subnet(name: str, cidr: str, vpc: aws.ec2.Vpc, named: Named, moves: bool) -> aws.ec2.Subnet:
    return aws.ec2.Subnet(
        name,
        vpc_id=vpc.id,
        cidr_block=cidr,
        availability_zone=named.resolved.zone,
        map_public_ip_on_launch=False,
        tags=named.tags(name),
        opts=named.options(delete_first=moves),
    )


def _routed(
    name: str,
    subnet: aws.ec2.Subnet,
    route: aws.ec2.RouteTableRouteArgs,
    vpc: aws.ec2.Vpc,
    named: Named,
) -> aws.ec2.RouteTableAssociation:
    """Create a route table for the subnet with that route and the VPC's local one."""
    table = aws.ec2.RouteTable(
        name, vpc_id=vpc.id, routes=[route], tags=named.tags(name), opts=named.options()
    )
    return aws.ec2.RouteTableAssociation(
        name, subnet_id=subnet.id, route_table_id=table.id, opts=named.options()
    )
