"""The checks of an existing network, for a cluster that creates none.

A default route is explained in AWS, "Route table options" and "Connect to the internet using an
internet gateway" (VPC User Guide, 2026-11-20). A machine without a public address cannot use an
internet gateway; it needs a NAT gateway, a transit gateway or another way to the internet.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from config.catalogue.instance_types import BASTION_TYPE
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import ExistingNetwork, Resolved
from config.command_text import command_text
from config.errors import InputError
from provision.aws.clients import aws_errors
from provision.aws.resources import ALIVE, find_instances

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

Route = Literal["public", "out", "none"]
"""The target of a subnet's default route: an internet gateway, anything else, or no such route."""

_NEEDS: dict[Route, str] = {
    "public": "has a default route to an internet gateway",
    "out": "has a default route out for machines without a public address (to a NAT gateway)",
}


@dataclass(frozen=True)
class ExistingSubnet:
    """A subnet in AWS. Addresses that the cluster already has in it count as `free`."""

    id: str
    zone: str
    route: Route
    free: int
    cidr: str


@dataclass(frozen=True)
class Vpc:
    """The VPC that a file names, and its subnets.

    `has_dns` is true if its resolver answers, `has_names` if AWS gives DNS names to its resources.
    """

    vpc: str
    has_dns: bool
    has_names: bool
    subnets: tuple[ExistingSubnet, ...]


@dataclass(frozen=True)
class NetworkNeeds:
    """The nodes' requirements of an existing network.

    `zones` are those that may take the nodes, best first; None if not known. `offers` has the zones
    of each instance type. `addresses` is the number of IP addresses of one node.
    """

    cluster: Cluster
    zones: tuple[str, ...] | None
    offers: dict[str, frozenset[str]]
    addresses: int


def find_network(ec2: "EC2Client", cluster: Cluster) -> Vpc | None:
    """Return the network that the file names, or None if it names none.

    Raises InputError if the VPC or the subnet does not exist, or if they do not belong together.
    """
    network = cluster.network
    if not network.exists:
        return None
    vpc = network.vpc
    with aws_errors():
        if network.subnet is not None:
            vpc = _vpc_of(ec2, network.subnet, vpc)
        assert vpc is not None
        if not ec2.describe_vpcs(Filters=_of("vpc-id", vpc))["Vpcs"]:
            raise _unknown(ec2, "vpc", vpc)
        dns = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsSupport")
        names = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")
        pages = ec2.get_paginator("describe_subnets").paginate(Filters=_of("vpc-id", vpc))
        subnets: list[Any] = list(pages.search("Subnets[]"))
        tables = ec2.get_paginator("describe_route_tables").paginate(Filters=_of("vpc-id", vpc))
        routes = _routes(list(tables.search("RouteTables[]")))
    own = _own_addresses(ec2, cluster.name)
    return Vpc(
        vpc=vpc,
        has_dns=bool(dns["EnableDnsSupport"]["Value"]),
        has_names=bool(names["EnableDnsHostnames"]["Value"]),
        subnets=tuple(
            ExistingSubnet(
                id=subnet["SubnetId"],
                zone=subnet["AvailabilityZone"],
                route=routes.get(subnet["SubnetId"], routes.get("", "none")),
                free=subnet["AvailableIpAddressCount"] + own[subnet["SubnetId"]],
                cidr=subnet["CidrBlock"],
            )
            for subnet in sorted(subnets, key=lambda raw: str(raw["SubnetId"]))
        ),
    )


def choose_subnets(
    network: Vpc, needs: NetworkNeeds, before: Resolved | None
) -> tuple[ExistingNetwork, list[InputError]]:
    """Return a subnet per zone for the nodes, one for the bastion if needed, and all problems.

    A cluster that exists keeps its subnets in `before`. The choice is valid only without problems.
    """
    problems = _dns_problems(network, needs.cluster)
    chosen, wrong = _node_subnets(network, needs, before)
    problems += wrong
    bastion = ""
    if needs.cluster.network.has_bastion:
        try:
            bastion = _bastion_subnet(network, needs, chosen, before)
        except InputError as error:
            problems.append(error)
    by_zone = {subnet.zone: subnet.id for subnet in chosen}
    return ExistingNetwork(vpc=network.vpc, subnets=by_zone, bastion_subnet=bastion), problems


def check_same_network(cluster: Cluster, before: Resolved | None) -> None:
    """Raise InputError if the file moves an existing cluster into another network."""
    if before is None:
        return
    was, now = before.existing_network, cluster.network
    if was is None and not now.exists:
        return
    if was is not None and now.exists:
        kept = now.subnet in (None, was.subnets.get(before.zone)) and now.vpc in (None, was.vpc)
        if kept:
            return
    where = f"in {was.subnets.get(before.zone)} of {was.vpc}" if was else "with its own VPC"
    raise InputError(
        f"network.{'subnet' if now.subnet else 'vpc'}: cluster '{cluster.name}' was created"
        f" {where}, and cannot move",
        f"remove it first: {command_text('gpuctl down {}', cluster.name)}",
    )


def _dns_problems(network: Vpc, cluster: Cluster) -> list[InputError]:
    """Return the DNS features that the VPC lacks. Nodes find an EFS only by its DNS name.

    "Mounting on Amazon EC2 with a DNS name" (EFS User Guide, 2026-11-20).
    """
    modify = "aws ec2 modify-vpc-attribute --vpc-id {} --enable-dns-"
    problems, shared = [], cluster.storage.shared
    if not network.has_dns:
        problems.append(
            InputError(
                f"network.vpc: {network.vpc} has no DNS support, so nodes could not resolve names",
                command_text(f"{modify}support", network.vpc),
            )
        )
    if shared is not None and shared.type == "efs" and not network.has_names:
        problems.append(
            InputError(
                f"network.vpc: {network.vpc} has no DNS hostnames, so nodes could not find the EFS"
                " of storage.shared",
                command_text(f"{modify}hostnames", network.vpc),
            )
        )
    return problems


def _vpc_of(ec2: "EC2Client", subnet: str, vpc: str | None) -> str:
    subnets = ec2.describe_subnets(Filters=_of("subnet-id", subnet))["Subnets"]
    if not subnets:
        raise _unknown(ec2, "subnet", subnet)
    actual = str(subnets[0]["VpcId"])
    if vpc not in (None, actual):
        raise InputError(
            f"network.subnet: {subnet} is in {actual}, not in network.vpc {vpc}",
            "leave network.vpc out, or name a subnet of it",
        )
    return actual


def _unknown(ec2: "EC2Client", what: str, resource: str) -> InputError:
    region = ec2.meta.region_name
    return InputError(
        f"network.{what}: {resource} does not exist in {region}, or this account may not use it",
        f"{command_text('aws ec2 describe-{}s --region {}', what, region)} lists yours",
    )


def _of(name: str, value: str) -> "list[FilterTypeDef]":
    return [{"Name": name, "Values": [value]}]


def _routes(tables: Sequence[Any]) -> dict[str, Route]:
    """Return the default route of each subnet with its own table; that of all others under ''."""
    routes: dict[str, Route] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            key = "" if association.get("Main") else association.get("SubnetId")
            if key is not None:
                routes[key] = _default_route(table)
    return routes


def _default_route(table: Any) -> Route:
    for route in table.get("Routes", ()):
        # A route whose target was deleted has the state `blackhole`.
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State") == "active":
            return "public" if str(route.get("GatewayId", "")).startswith("igw-") else "out"
    return "none"


def _own_addresses(ec2: "EC2Client", cluster: str) -> Counter[str]:
    """Return the number of addresses that the cluster's machines have, by subnet."""
    return Counter(
        str(interface["SubnetId"])
        for instance in find_instances(ec2, cluster)
        if instance.state in ALIVE
        for interface in instance.attributes.get("NetworkInterfaces", ())
        if interface.get("PrivateIpAddress")
    )


def _node_subnets(
    network: Vpc, needs: NetworkNeeds, before: Resolved | None
) -> tuple[list[ExistingSubnet], list[InputError]]:
    """Return the subnets for the nodes, one per zone, and the problems.

    If the file names the subnet, all of its problems are returned.
    """
    cluster, needed = needs.cluster, needs.cluster.nodes * needs.addresses
    route: Route = "public" if cluster.network.nodes_are_public else "out"
    named = cluster.network.subnet
    if before is not None and before.existing_network is not None:
        named = before.existing_network.subnets[before.zone]
    if named is not None:
        subnet = next((candidate for candidate in network.subnets if candidate.id == named), None)
        if subnet is None:
            gone = InputError(
                f"network.vpc: {network.vpc} no longer has {named}, the subnet of cluster"
                f" '{cluster.name}'",
                f"remove the cluster: {command_text('gpuctl down {}', cluster.name)}",
            )
            return [], [gone]
        return [subnet], _subnet_problems(subnet, needs, route, needed)
    where = f"network.vpc: no subnet of {network.vpc}"
    in_zones = [
        subnet for subnet in network.subnets if needs.zones is None or subnet.zone in needs.zones
    ]
    if not in_zones:
        zones = ", ".join(needs.zones or ())
        return [], [InputError(f"{where} is in {zones}", "create one there, or name another VPC")]
    routed = [subnet for subnet in in_zones if subnet.route == route]
    if not routed:
        names = ", ".join(subnet.id for subnet in in_zones)
        return [], [InputError(f"{where} {_NEEDS[route]} ({names} have none)", _route_hint(route))]
    best: dict[str, ExistingSubnet] = {}
    for candidate in routed:
        known = best.get(candidate.zone)
        if known is None or candidate.free > known.free:
            best[candidate.zone] = candidate
    if chosen := [subnet for subnet in best.values() if subnet.free >= needed]:
        return chosen, []
    most = max(best.values(), key=lambda each: each.free)
    return [], [
        InputError(
            f"{where} has {needed} free addresses for {cluster.nodes} nodes:"
            f" {most.id} has {most.free}",
            _ADDRESS_HINT,
        )
    ]


_ADDRESS_HINT = "free some, name a larger subnet, or ask for fewer nodes"


def _subnet_problems(
    subnet: ExistingSubnet, needs: NetworkNeeds, route: Route, needed: int
) -> list[InputError]:
    cluster, name = needs.cluster, f"network.subnet: {subnet.id}"
    problems = []
    if needs.zones is not None and subnet.zone not in needs.zones:
        offering = needs.offers.get(cluster.instance_type, frozenset())
        reason = f"which does not offer {cluster.instance_type}"
        if cluster.capacity.id is not None:
            reason = f"and reservation {cluster.capacity.id} in {needs.zones[0]}"
        elif subnet.zone in offering:
            reason = "which is not in capacity.zones"
        zones = ", ".join(needs.zones)
        problems.append(
            InputError(f"{name} is in {subnet.zone}, {reason}", f"name a subnet in {zones}")
        )
    if subnet.route != route:
        problems.append(
            InputError(
                f"{name} must be one that {_NEEDS[route]}, because network.access is"
                f" {cluster.network.access}",
                _route_hint(route),
            )
        )
    if subnet.free < needed:
        problems.append(
            InputError(
                f"{name} has {subnet.free} free addresses, {cluster.nodes} nodes need {needed}",
                _ADDRESS_HINT,
            )
        )
    return problems


def _route_hint(route: Route) -> str:
    if route == "public":
        return "route 0.0.0.0/0 to an internet gateway, name another subnet, or change access"
    return "route 0.0.0.0/0 to a NAT gateway, or name another subnet"


def _bastion_subnet(
    network: Vpc, needs: NetworkNeeds, nodes: Sequence[ExistingSubnet], before: Resolved | None
) -> str:
    """Return a public subnet, in the nodes' zone if possible; raise InputError if there is none."""
    if before is not None and before.existing_network is not None:
        return before.existing_network.bastion_subnet
    zones = needs.offers.get(BASTION_TYPE)
    fitting = [
        subnet
        for subnet in network.subnets
        if subnet.route == "public" and subnet.free > 0 and (zones is None or subnet.zone in zones)
    ]
    if not fitting:
        raise InputError(
            f"network.access is bastion, but {network.vpc} has no subnet for the bastion: a public"
            f" one with a free address, in a zone that offers {BASTION_TYPE}",
            "use access: ssm, or access: private with your VPN or VPC peering",
        )
    near = {node.zone for node in nodes}
    return max(fitting, key=lambda candidate: (candidate.zone in near, candidate.free)).id
