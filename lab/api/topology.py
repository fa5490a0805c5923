"""DescribeInstanceTopology, which moto lacks: an instance's position in the network.

Source of shapes, limits and types: the action's reference, and "Prerequisites for Amazon EC2
topology" and "Examples for Amazon EC2 instance topology" of the EC2 User Guide (2026-11-20).
"""

import hashlib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from moto.core.responses import ActionResult

from lab.api.errors import Refusal

LAYERS: Sequence[tuple[str, int]] = (
    (r"(g6e|g7e)\.\w+", 3),
    (r"hpc\w+\.\w+", 3),
    (r"(p3dn|p4d|p4de)\.24xlarge", 3),
    (r"(p5|p5e|p5en)\.48xlarge|p6e-gb200\.36xlarge", 3),
    (r"trn1\.(2|32)xlarge|trn1n\.32xlarge|trn2u?\.48xlarge", 3),
    (r"p6-b[23]00\.48xlarge", 4),
)
"""The number of network nodes that EC2 returns, by a pattern of types; other types have none."""

DEFAULT_PAGE = 20


def network_nodes(instance: Any) -> list[str]:
    """Return the network nodes above the instance, from the top; none if EC2 returns none.

    Instances of a zone share the upper nodes; eight instances of a placement group share the next
    one; even and odd numbers have different lowest ones. So node0 and node2 are neighbours and
    node1 is elsewhere. The number is the one at the end of the instance's name.
    """
    depth = next((n for form, n in LAYERS if re.fullmatch(form, instance.instance_type)), 0)
    if not depth or instance.state != "running":
        return []
    number = _number(instance)
    zone, group = instance.availability_zone, instance.placement.group_name
    middle = f"{zone} {group} {number // 8}"
    upper = [f"{zone} {layer}" for layer in range(depth - 2)]
    return [_name(place) for place in (*upper, middle, f"{middle} {number % 2}")]


def _number(instance: Any) -> int:
    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
    match = re.search(r"[0-9]{1,6}$", tags.get("Name", ""))
    return int(match[0]) if match else 0


def _name(place: str) -> str:
    return f"nn-{hashlib.sha256(place.encode()).hexdigest()[:17]}"


class TopologyActions:
    """The action on topology; part of the lab's EC2 responses."""

    ec2_backend: Any
    _get_param: Any
    _filters_from_querystring: Any
    error_on_dryrun: Any

    def describe_instance_topology(self) -> ActionResult:
        """Answer DescribeInstanceTopology: running instances of the supported types, or by id.

        Named instances come in pages too: with ids a request may not set MaxResults, whose default
        is 20.
        """
        self.error_on_dryrun()
        ids, groups = self._get_param("InstanceIds", []), self._get_param("GroupNames", [])
        descriptions = self._descriptions(ids, groups)
        start = self._start()
        end = start + int(self._get_param("MaxResults") or DEFAULT_PAGE)
        answer: dict[str, Any] = {"Instances": descriptions[start:end]}
        if end < len(descriptions):
            answer["NextToken"] = str(end)
        return ActionResult(answer)

    def _start(self) -> int:
        token = self._get_param("NextToken") or "0"
        if not token.isdigit():
            raise Refusal("InvalidNextToken", "The token is not valid.")
        return int(token)

    def _descriptions(self, ids: list[str], groups: list[str]) -> list[dict[str, Any]]:
        backend = self.ec2_backend
        for group in groups:
            backend.placement_group(group)
        instances = backend.get_multi_instances_by_id(ids) if ids else backend.all_instances()
        filters = self._filters_from_querystring()
        entries = []
        for instance in instances:
            above = network_nodes(instance)
            if not ids and not above:
                continue
            if groups and instance.placement.group_name not in groups:
                continue
            entry = _description(instance, above)
            if _matches(entry, filters):
                entries.append(entry)
        return entries


def _description(instance: Any, above: list[str]) -> dict[str, Any]:
    """Return the instance as EC2's InstanceTopology."""
    entry = {
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "NetworkNodes": above,
        "AvailabilityZone": instance.availability_zone,
        "ZoneId": _zone_id(instance),
    }
    if instance.placement.group_name:
        entry["GroupName"] = instance.placement.group_name
    return entry


def _zone_id(instance: Any) -> str:
    (zone,) = instance.ec2_backend.describe_availability_zones(
        zone_names=[instance.availability_zone]
    )
    return str(zone.zone_id)


_FILTERS = {
    "availability-zone": "AvailabilityZone",
    "instance-type": "InstanceType",
    "zone-id": "ZoneId",
}


def _matches(entry: dict[str, Any], filters: dict[str, list[str]]) -> bool:
    for name, values in filters.items():
        if not any(fnmatchcase(entry[_FILTERS[name]], value) for value in values):
            return False
    return True
