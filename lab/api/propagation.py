"""The fault `consistency`: EC2 knows what it has created only some seconds later.

AWS: until an id has reached all of EC2, requests that name it are refused as if it did not exist,
and lists lack it; clients should wait from seconds to five minutes. A TerminateInstances that is
refused in this way leaves the instance running. Source: "Eventual consistency in the Amazon EC2
API", https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html (2026-11-23). The
lab knows a new id nowhere, and then everywhere. AWS may also forget it again in between.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from lab.api.errors import Refusal


@dataclass(frozen=True)
class _Kind:
    """A kind of resource, the actions that create and list it, and EC2's code for an unknown one.

    `field` is the field of answers with its id. `name` is the parameter with its name, for kinds
    that requests name without an id.
    """

    noun: str
    created_by: str
    listed_by: str
    field: str
    code: str
    name: str = ""


_KINDS = (
    _Kind("vpc", "CreateVpc", "DescribeVpcs", "vpcId", "InvalidVpcID.NotFound"),
    _Kind("subnet", "CreateSubnet", "DescribeSubnets", "subnetId", "InvalidSubnetID.NotFound"),
    _Kind("security group", "CreateSecurityGroup", "DescribeSecurityGroups", "groupId",
          "InvalidGroup.NotFound"),
    _Kind("internet gateway", "CreateInternetGateway", "DescribeInternetGateways",
          "internetGatewayId", "InvalidInternetGatewayID.NotFound"),
    _Kind("allocation", "AllocateAddress", "DescribeAddresses", "allocationId",
          "InvalidAllocationID.NotFound"),
    _Kind("NAT gateway", "CreateNatGateway", "DescribeNatGateways", "natGatewayId",
          "NatGatewayNotFound"),
    _Kind("route table", "CreateRouteTable", "DescribeRouteTables", "routeTableId",
          "InvalidRouteTableID.NotFound"),
    _Kind("association", "AssociateRouteTable", "", "associationId",
          "InvalidAssociationID.NotFound"),
    _Kind("key pair", "ImportKeyPair", "DescribeKeyPairs", "keyPairId", "InvalidKeyPair.NotFound",
          "KeyName"),
    _Kind("placement group", "CreatePlacementGroup", "DescribePlacementGroups", "groupId",
          "InvalidPlacementGroup.Unknown", "GroupName"),
    _Kind("launch template", "CreateLaunchTemplate", "DescribeLaunchTemplates", "launchTemplateId",
          "InvalidLaunchTemplateId.NotFound"),
    _Kind("capacity reservation", "CreateCapacityReservation", "DescribeCapacityReservations",
          "capacityReservationId", "InvalidCapacityReservationId.NotFound"),
    _Kind("instance", "RunInstances", "DescribeInstances", "instanceId",
          "InvalidInstanceID.NotFound"),
    _Kind("network interface", "RunInstances", "DescribeNetworkInterfaces", "networkInterfaceId",
          "InvalidNetworkInterfaceID.NotFound"),
    _Kind("network interface", "CreateNetworkInterface", "DescribeNetworkInterfaces",
          "networkInterfaceId", "InvalidNetworkInterfaceID.NotFound"),
    _Kind("volume", "RunInstances", "DescribeVolumes", "volumeId", "InvalidVolume.NotFound"),
    _Kind("volume", "CreateVolume", "DescribeVolumes", "volumeId", "InvalidVolume.NotFound"),
)  # fmt: skip


class Propagation:
    """The ids and names that one region's EC2 has created, with the time of their creation."""

    def __init__(self) -> None:
        self._created: dict[str, tuple[_Kind, float]] = {}

    def check(self, action: str, parameters: Mapping[str, Any], delay: int) -> None:
        """Refuse a request that names, outside of its filters, what is younger than `delay`."""
        named = {
            key: value for key, value in parameters.items() if key not in ("Filter", "Filters")
        }
        for text in _texts(named):
            if (kind := self._young(delay).get(text)) and not kind.name:
                raise _unknown(kind, text)
        if action.startswith(("Create", "Import")):
            return  # its name is a new one
        for kind in _KINDS:
            for name in _texts([named.get(kind.name), named.get(f"{kind.name}s")]):
                if f"{kind.noun} {name}" in self._young(delay):
                    raise _unknown(kind, name)

    def record(self, action: str, parameters: Mapping[str, Any], body: str) -> None:
        """Record what the answer `body` says to have been created."""
        for kind in _KINDS:
            if kind.created_by != action:
                continue
            made = re.findall(f"<{kind.field}>([^<]+)</{kind.field}>", body)
            if kind.name and made:
                made.append(f"{kind.noun} {parameters[kind.name]}")
            for resource in made:
                self._created.setdefault(resource, (kind, time.monotonic()))

    def without_young(self, action: str, body: str, delay: int) -> str:
        """Return a list's answer without what is younger than `delay`."""
        field = next((kind.field for kind in _KINDS if kind.listed_by == action), "")
        young = self._young(delay)
        if not field or not any(f">{resource}<" in body for resource in young):
            return body
        namespace = re.search(r'xmlns="([^"]+)"', body)
        prefix = f"{{{namespace[1]}}}" if namespace else ""
        if namespace:
            ElementTree.register_namespace("", namespace[1])
        root = ElementTree.fromstring(body)  # noqa: S314  (the lab wrote it)
        for parent in list(root.iter()):
            for item in parent.findall(f"{prefix}item"):
                if item.findtext(f"{prefix}{field}") in young:
                    parent.remove(item)
        for reservations in root.findall(f"{prefix}reservationSet"):
            for item in reservations.findall(f"{prefix}item"):
                if not item.findall(f"{prefix}instancesSet/{prefix}item"):
                    reservations.remove(item)
        return ElementTree.tostring(root, encoding="unicode")

    def _young(self, delay: int) -> dict[str, _Kind]:
        now = time.monotonic()
        return {
            resource: kind for resource, (kind, made) in self._created.items() if now - made < delay
        }


def _texts(value: Any) -> Iterable[str]:
    """Yield all texts in a request's parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _unknown(kind: _Kind, name: str) -> Refusal:
    return Refusal(kind.code, f"The {kind.noun} '{name}' does not exist")
