"""A plan as text to review: what `gpuctl plan` prints, and what the engine will ask AWS for."""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

import yaml

from cli.render.plan import plan_lines
from config.target import Target
from infra.stack.changes import Plan
from infra.stack.workspace import folder
from provision.up import FleetPlan
from tests.plans.cases import Case

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate nodes"

_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # Pulumi's sign for "known after apply"
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_OF_THE_TYPE = (TEMPLATE, "aws:ec2/placementGroup:PlacementGroup nodes")
_LEFT_OUT = frozenset(
    {
        *("tags", "tagSpecifications", "volumeTags"),  # every resource's, and the same
        *("userData", "userDataBase64", "publicKey"),  # tests/provision/test_cloud_init.py
    }
)


@dataclass(frozen=True)
class Planned:
    """A plan, and by type and name the properties with which each resource is to be made."""

    fleet: FleetPlan
    resources: dict[str, Any]

    def text(self, case: Case) -> str:
        """The golden file: for a mode all resources, for a type those that it decides about.

        The engine comes to independent resources in any order: here they are sorted.
        """
        changes = sorted(self.fleet.plan.changes, key=lambda change: (change.type, change.name))
        shown = replace(self.fleet, plan=Plan(tuple(changes)))
        wanted = sorted(self.resources) if case.is_mode else _OF_THE_TYPE
        properties = {name: _readable(self.resources[name]) for name in wanted}
        asked = yaml.safe_dump(properties, width=100)
        said = _DATE.sub("(some time)", "\n".join(plan_lines(shown)))
        return f"{case.text}---\n{said}\n---\n{asked}"


def planned(fleet: FleetPlan, target: Target) -> Planned:
    """The plan with what the engine keeps of it: `up` does that and nothing else."""
    cluster = fleet.resolved.cluster.name
    (kept,) = folder(cluster, target).glob("*.plan.json")
    resources = {}
    for resource in json.loads(kept.read_text())["resourcePlans"].values():
        goal = resource["goal"]
        if not goal["type"].startswith("pulumi:"):
            resources[f"{goal['type']} {goal['name']}"] = goal["inputDiff"].get("adds", {})
    return Planned(fleet, resources)


def _readable(value: Any) -> Any:
    """Without what says nothing to a reader, and 33 interfaces in a line each."""
    if isinstance(value, dict):
        kept = {name: _readable(one) for name, one in value.items() if name not in _LEFT_OUT}
        if interfaces := kept.get("networkInterfaces"):
            kept["networkInterfaces"] = [_line(interface) for interface in interfaces]
        return kept
    if isinstance(value, list):
        return [_readable(one) for one in value]
    return "(known after apply)" if value == _UNKNOWN else value


def _line(interface: dict[str, Any]) -> str:
    rest = dict(interface)
    card, device = rest.pop("networkCardIndex"), rest.pop("deviceIndex")
    kind = rest.pop("interfaceType")
    # The cluster's subnet and group, and no public address: what differs from that is told.
    usual = {
        "associatePublicIpAddress": "false",
        "deleteOnTermination": "true",
        "securityGroups": ["(known after apply)"],
        "subnetId": "(known after apply)",
    }
    others = {name: one for name, one in rest.items() if usual.get(name) != one}
    missing = sorted(set(usual) - set(rest))
    told = "".join(f", {name} {one}" for name, one in sorted(others.items()))
    return f"card {card} device {device} {kind}{told}" + "".join(f", no {m}" for m in missing)
