"""A network that exists, for a cluster that makes none: looked at before anything is made.

What a default route is and does: AWS, "Route table options" and "Connect to the internet using an
internet gateway" (VPC User Guide, 2026-11-20). A machine without a public address gets nowhere
through an internet gateway; a NAT gateway, a transit gateway or anything else may take it out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from config.catalogue.instance_types import BASTION_TYPE
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import ExistingNetwork, Resolved
from config.errors import InputError
from provision.aws.clients import aws_errors
from provision.aws.resources import ALIVE, find_instances

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

Route = Literal["public", "out", "none"]
"""Where a subnet's default route goes: to an internet gateway, to anything else, or nowhere."""

_NEEDS: dict[Route, str] = {
    "public": "has a default route to an internet gateway",
    "out": "has a default route out for machines without a public address (to a NAT gateway)",
}


@dataclass(frozen=True)
class Subnet:
    """A subnet as AWS has it. `free` counts addresses that the cluster has in it as free."""

    id: str
    zone: str
    route: Route
    free: int


@dataclass(frozen=True)
class Found:
    """The VPC that a file names, and its subnets.

    `has_dns` is whether its resolver answers, `has_names` whether AWS gives names to what is in it.
    """

    vpc: str
    has_dns: bool
    has_names: bool
    subnets: tuple[Subnet, ...]


@dataclass(frozen=True)
class Wanted:
    """What the nodes need of a network that exists.

    `zones` are those that may take them, best first; None where that is not known. `offers` has
    the zones of each type. `addresses` is how many one node takes.
    """

    cluster: Cluster
    zones: tuple[str, ...] | None
    offers: dict[str, frozenset[str]]
    addresses: int


def find_network(ec2: "EC2Client", cluster: Cluster) -> Found | None:
    """The network that the file names, None where it names none.

    Raises InputError for a VPC or subnet that does not exist, or that do not belong together.
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
        subnets: list[Any] = [one for page in pages for one in page["Subnets"]]
        tables = ec2.get_paginator("describe_route_tables").paginate(Filters=_of("vpc-id", vpc))
        routes = _routes([table for page in tables for table in page["RouteTables"]])
    own = _own_addresses(ec2, cluster.name)
    return Found(
        vpc=vpc,
        has_dns=bool(dns["EnableDnsSupport"]["Value"]),
        has_names=bool(names["EnableDnsHostnames"]["Value"]),
        subnets=tuple(
            Subnet(
                id=one["SubnetId"],
                zone=one["AvailabilityZone"],
                route=routes.get(one["SubnetId"], routes.get("", "none")),
                free=one["AvailableIpAddressCount"] + own[one["SubnetId"]],
            )
            for one in sorted(subnets, key=lambda one: str(one["SubnetId"]))
        ),
    )


def choose_subnets(
    found: Found, wanted: Wanted, before: Resolved | None
) -> tuple[ExistingNetwork, list[InputError]]:
    """A subnet per zone for the nodes, the bastion's if it needs one, and all that is wrong.

    A cluster that exists keeps what it has in `before`. With a complaint the choice means nothing.
    """
    problems = _without_dns(found, wanted.cluster)
    chosen, complaints = _for_nodes(found, wanted, before)
    problems += complaints
    bastion = ""
    if wanted.cluster.network.has_bastion:
        try:
            bastion = _for_bastion(found, wanted, chosen, before)
        except InputError as error:
            problems.append(error)
    by_zone = {subnet.zone: subnet.id for subnet in chosen}
    return ExistingNetwork(vpc=found.vpc, subnets=by_zone, bastion_subnet=bastion), problems


def check_same_network(cluster: Cluster, before: Resolved | None) -> None:
    """The cluster is in the network that it was made in; else InputError."""
    if before is None:
        return
    was, now = before.existing_network, cluster.network
    if was is None and not now.exists:
        return
    if was is not None and now.exists:
        kept = now.subnet in (None, was.subnets.get(before.zone)) and now.vpc in (None, was.vpc)
        if kept:
            return
    where = f"in {was.subnets.get(before.zone)} of {was.vpc}" if was else "with a VPC of its own"
    raise InputError(
        f"network.{'subnet' if now.subnet else 'vpc'}: cluster '{cluster.name}' was made {where},"
        " and cannot move",
        f"remove it first: `gpuctl down {cluster.name}`",
    )


def _without_dns(found: Found, cluster: Cluster) -> list[InputError]:
    """What of DNS the VPC lacks. An EFS has a name where the VPC gives names, and only there.

    "Mounting on Amazon EC2 with a DNS name" (EFS User Guide, 2026-11-20).
    """
    modify = f"`aws ec2 modify-vpc-attribute --vpc-id {found.vpc}"
    problems, shared = [], cluster.storage.shared
    if not found.has_dns:
        problems.append(
            InputError(
                f"network.vpc: {found.vpc} has no DNS support, so nodes could look up no name",
                f"{modify} --enable-dns-support`",
            )
        )
    if shared is not None and shared.type == "efs" and not found.has_names:
        problems.append(
            InputError(
                f"network.vpc: {found.vpc} has no DNS hostnames, so nodes could not find the EFS of"
                " storage.shared",
                f"{modify} --enable-dns-hostnames`",
            )
        )
    return problems


def _vpc_of(ec2: "EC2Client", subnet: str, vpc: str | None) -> str:
    told = ec2.describe_subnets(Filters=_of("subnet-id", subnet))["Subnets"]
    if not told:
        raise _unknown(ec2, "subnet", subnet)
    actual = str(told[0]["VpcId"])
    if vpc not in (None, actual):
        raise InputError(
            f"network.subnet: {subnet} is in {actual}, not in network.vpc {vpc}",
            "leave network.vpc out, or name a subnet of it",
        )
    return actual


def _unknown(ec2: "EC2Client", what: str, resource: str) -> InputError:
    region = ec2.meta.region_name
    return InputError(
        f"network.{what}: {resource} does not exist in {region}, or not for this account",
        f"`aws ec2 describe-{what}s --region {region}` lists yours",
    )


def _of(name: str, value: str) -> "list[FilterTypeDef]":
    return [{"Name": name, "Values": [value]}]


def _routes(tables: Sequence[Any]) -> dict[str, Route]:
    """The default route of each subnet that has a table of its own; of all others by ''."""
    found: dict[str, Route] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            key = "" if association.get("Main") else association.get("SubnetId")
            if key is not None:
                found[key] = _default_route(table)
    return found


def _default_route(table: Any) -> Route:
    for route in table.get("Routes", ()):
        # A target that is gone leaves a route that is a blackhole.
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State") == "active":
            return "public" if str(route.get("GatewayId", "")).startswith("igw-") else "out"
    return "none"


def _own_addresses(ec2: "EC2Client", cluster: str) -> Counter[str]:
    """How many addresses the cluster's machines have by now, by subnet."""
    return Counter(
        str(interface["SubnetId"])
        for instance in find_instances(ec2, cluster)
        if instance.state in ALIVE
        for interface in instance.attributes.get("NetworkInterfaces", ())
        if interface.get("PrivateIpAddress")
    )


def _for_nodes(
    found: Found, wanted: Wanted, before: Resolved | None
) -> tuple[list[Subnet], list[InputError]]:
    """The subnets for the nodes, one per zone; a named one is told everything that is wrong."""
    cluster, needed = wanted.cluster, wanted.cluster.nodes * wanted.addresses
    route: Route = "public" if cluster.network.nodes_are_public else "out"
    named = cluster.network.subnet
    if before is not None and before.existing_network is not None:
        named = before.existing_network.subnets[before.zone]
    if named is not None:
        subnet = next((one for one in found.subnets if one.id == named), None)
        if subnet is None:
            gone = InputError(
                f"network.vpc: {found.vpc} has no {named} any more, which cluster"
                f" '{cluster.name}' is in",
                f"remove the cluster: `gpuctl down {cluster.name}`",
            )
            return [], [gone]
        return [subnet], _wrong_with(subnet, wanted, route, needed)
    where = f"network.vpc: no subnet of {found.vpc}"
    there = [one for one in found.subnets if wanted.zones is None or one.zone in wanted.zones]
    if not there:
        zones = ", ".join(wanted.zones or ())
        return [], [InputError(f"{where} is in {zones}", "make one there, or name another VPC")]
    routed = [one for one in there if one.route == route]
    if not routed:
        looked = ", ".join(one.id for one in there)
        return [], [InputError(f"{where} {_NEEDS[route]} ({looked} have none)", _route_hint(route))]
    best: dict[str, Subnet] = {}
    for one in routed:
        if one.free > best.get(one.zone, Subnet("", "", route, -1)).free:
            best[one.zone] = one
    if chosen := [one for one in best.values() if one.free >= needed]:
        return chosen, []
    most = max(best.values(), key=lambda one: one.free)
    return [], [
        InputError(
            f"{where} has {needed} free addresses for {cluster.nodes} nodes:"
            f" {most.id} has {most.free}",
            _ADDRESS_HINT,
        )
    ]


_ADDRESS_HINT = "free some, name a larger subnet, or ask for fewer nodes"


def _wrong_with(subnet: Subnet, wanted: Wanted, route: Route, needed: int) -> list[InputError]:
    cluster, name = wanted.cluster, f"network.subnet: {subnet.id}"
    problems = []
    if wanted.zones is not None and subnet.zone not in wanted.zones:
        offering = wanted.offers.get(cluster.instance_type, frozenset())
        reason = f"which does not offer {cluster.instance_type}"
        if cluster.capacity.id is not None:
            reason = f"and reservation {cluster.capacity.id} in {wanted.zones[0]}"
        elif subnet.zone in offering:
            reason = "which is not in capacity.zones"
        zones = ", ".join(wanted.zones)
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


def _for_bastion(
    found: Found, wanted: Wanted, nodes: Sequence[Subnet], before: Resolved | None
) -> str:
    """A public subnet, in the nodes' zone if there is one; InputError where there is none."""
    if before is not None and before.existing_network is not None:
        return before.existing_network.bastion_subnet
    zones = wanted.offers.get(BASTION_TYPE)
    fitting = [
        one
        for one in found.subnets
        if one.route == "public" and one.free > 0 and (zones is None or one.zone in zones)
    ]
    if not fitting:
        raise InputError(
            f"network.access is bastion, but {found.vpc} has no subnet for the bastion: a public"
            f" one with a free address, in a zone that offers {BASTION_TYPE}",
            "use access: ssm, or private with a VPN or peering of your own",
        )
    near = {one.zone for one in nodes}
    return max(fitting, key=lambda one: (one.zone in near, one.free)).id
