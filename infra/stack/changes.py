"""The changes that Pulumi would make, for the text of a plan, and the operations of a kept plan."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from config.yaml.hints import shorten

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent, StepEventMetadata

Op = Literal["create", "update", "replace", "delete", "same"]

ADDRESS, INSTANCE = "aws:ec2/eip:Eip", "aws:ec2/instance:Instance"
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_SLOW = {
    "aws:ec2/natGateway:NatGateway": "NAT gateway",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "FSx file system",
}
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # Pulumi's mark for "known after apply"
_TAGS = frozenset({"tags", "tagsAll", "volumeTags"})
_MOST_PATHS = 6  # of one property; with more, the property is shown as a whole
_FORCES = " (forces replacement)"
_LONGEST = 60  # characters of a value in a line: user data would fill the screen

_OPS: Mapping[str, Op] = {
    "create": "create",
    "update": "update",
    "delete": "delete",
    "same": "same",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
}


@dataclass(frozen=True)
class Change:
    """The operation on one resource.

    `type` is Pulumi's (`aws:ec2/instance:Instance`). `details` of an update or replacement are
    lines such as `instanceType: "p4d.24xlarge" -> "p5.48xlarge" (forces replacement)`. A resource
    that no longer exists in AWS has a line that reports this.
    """

    op: Op
    type: str
    name: str
    details: tuple[str, ...] = ()

    @property
    def properties(self) -> tuple[str, ...]:
        """The properties that differ; those of a replacement are only the ones that force it."""
        forcing = tuple(line for line in self.details if line.endswith(_FORCES))
        lines = forcing or self.details
        return tuple(dict.fromkeys(_property(line.partition(": ")[0]) for line in lines))


@dataclass(frozen=True)
class Plan:
    """The operations on all resources of the cluster, in Pulumi's order.

    `launched_with` has the version of the launch template of each node that exists, by its name.
    `template` is the id of that template, and `newest` its newest version; both are empty if none
    exists yet.
    """

    changes: tuple[Change, ...]
    launched_with: Mapping[str, str] = field(default_factory=dict)
    template: str = ""
    newest: str = ""

    @property
    def counts(self) -> dict[Op, int]:
        """The number of resources per operation, including `same`."""
        return dict(Counter(change.op for change in self.changes))

    @property
    def is_empty(self) -> bool:
        """Return whether nothing would change."""
        return all(change.op == "same" for change in self.changes)

    @property
    def is_new(self) -> bool:
        """Return whether nothing of the cluster exists yet."""
        return all(change.op == "create" for change in self.changes)

    @property
    def makes_group(self) -> bool:
        """Return whether the placement group is to be created."""
        return any(
            (change.op, change.type) == ("create", PLACEMENT_GROUP) for change in self.changes
        )

    @property
    def slow(self) -> tuple[str, ...]:
        """Return what would be created and takes AWS minutes, in words."""
        made = {change.type for change in self.changes if change.op in ("create", "replace")}
        return tuple(title for kind, title in _SLOW.items() if kind in made)

    @property
    def new_machines(self) -> tuple[str, ...]:
        """The names of the instances that would be created, also in place of others."""
        made = [change for change in self.changes if change.op in ("create", "replace")]
        return tuple(resource.name for resource in made if resource.type == INSTANCE)

    @property
    def ends_machines(self) -> bool:
        """Return whether an instance is terminated, also to be replaced."""
        ops = {change.op for change in self.changes if change.type == INSTANCE}
        return bool(ops & {"replace", "delete"})

    @property
    def only_adds(self) -> bool:
        """Return whether everything that exists stays as it is.

        After a node's instance is gone, its public address stays too: it moves to the new one.
        """
        made = {
            change.name
            for change in self.changes
            if (change.op, change.type) == ("create", INSTANCE)
        }
        return all(
            change.op in ("same", "create")
            or (change.op == "update" and change.type == ADDRESS and change.name in made)
            for change in self.changes
        )


def plan_of(events: "Iterable[EngineEvent]") -> Plan:
    """Return the plan in the events of a preview with refresh."""
    gone: set[str] = set()
    changes: dict[str, Change] = {}
    launched_with: dict[str, str] = {}
    template = newest = ""
    for event in events:
        if event.res_outputs_event and _vanished(event.res_outputs_event.metadata):
            gone.add(event.res_outputs_event.metadata.urn)
        if event.resource_pre_event is None:
            continue
        step = event.resource_pre_event.metadata
        change = _change(step, gone=step.urn in gone)
        if change is None or not is_cloud(step.type):
            continue
        outputs = (step.old.outputs if step.old else None) or {}
        if step.old and step.type == TEMPLATE:
            template, newest = step.old.id, _version(outputs.get("latestVersion"))
        if launch := outputs.get("launchTemplate"):
            launched_with[name_of(step.urn)] = _version(launch.get("version"))
        known = changes.get(step.urn)
        if known is None or not known.details:  # only one step of a replacement has details
            changes[step.urn] = change
    return Plan(tuple(changes.values()), launched_with, template, newest)


@dataclass(frozen=True)
class Refreshed:
    """What differs in AWS from the stack's state: updates and deletions that others made.

    `ids` are AWS's ids of all resources in the state.
    """

    changes: tuple[Change, ...]
    ids: frozenset[str]


def refreshed(
    events: "Iterable[EngineEvent]", is_foreign: Callable[[str], bool] = lambda key: False
) -> Refreshed:
    """Return the differences in the events of a preview of `pulumi refresh`, by type and name.

    A resource of which nothing differs but tags with foreign keys is left out.
    """
    changes: list[Change] = []
    ids: set[str] = set()
    for event in events:
        step = event.res_outputs_event.metadata if event.res_outputs_event else None
        if step is None or not is_cloud(step.type):
            continue
        if step.old is not None:
            ids.add(step.old.id)
        op = _OPS.get(step.op)
        if op == "delete":
            changes.append(Change(op, step.type, name_of(step.urn), ("it no longer exists",)))
        elif op == "update":
            new = step.new.outputs if step.new else None
            details = _details(step, new, is_foreign)
            if details or not step.detailed_diff:
                changes.append(Change(op, step.type, name_of(step.urn), details))
    changes.sort(key=lambda change: (change.type, change.name))
    return Refreshed(tuple(changes), frozenset(ids))


def is_cloud(kind: str) -> bool:
    """Return whether the type exists in the cloud; the stack and the provider are only Pulumi's."""
    return not kind.startswith("pulumi:")


def name_of(urn: str) -> str:
    """Return the resource's name, the last part of its URN."""
    return urn.rpartition("::")[2]


def _vanished(step: "StepEventMetadata") -> bool:
    """Return whether the refresh found that the resource no longer exists."""
    return step.op == "refresh" and (step.new is None or not step.new.id)


def _change(step: "StepEventMetadata", *, gone: bool) -> Change | None:
    op = _OPS.get(step.op)
    if op is None:
        return None
    if gone and op == "create":
        details: tuple[str, ...] = ("it no longer exists in AWS and is created again",)
    else:
        details = _details(step, step.new.inputs if step.new else None)
    return Change(op, step.type, name_of(step.urn), details)


def _details(
    step: "StepEventMetadata",
    new: Mapping[str, Any] | None,
    is_foreign: Callable[[str], bool] = lambda key: False,
) -> tuple[str, ...]:
    """Return a line for each property that differs between the state and `new`.

    Tags with foreign keys are left out.
    """
    old = step.old.outputs if step.old else None
    diffs = {
        path: diff
        for path, diff in (step.detailed_diff or {}).items()
        if not _is_foreign(path, old, new, is_foreign)
    }
    lines: dict[str, str] = {}
    per_property = Counter(_property(path) for path in diffs)
    for path in sorted(diffs):
        prop = _property(path)
        # 32 network interfaces with six fields each would be too many lines to read.
        shown = path if per_property[prop] <= _MOST_PATHS else prop
        forced = _FORCES if diffs[path].diff_kind.endswith("-replace") else ""
        lines[shown] = f"{shown}: {_shown(_at(old, shown))} -> {_shown(_at(new, shown))}{forced}"
    return tuple(lines.values())


def _is_foreign(path: str, old: Any, new: Any, is_foreign: Callable[[str], bool]) -> bool:
    """Return whether nothing differs at the path but tags with foreign keys.

    The tags in a launch template are not a resource's: nodes are launched with them.
    """
    parts = [str(part) for part in _parts(path)]
    if parts[0] == "tagSpecifications" or not _TAGS & set(parts[-2:]):
        return False
    if parts[-1] not in _TAGS:
        return is_foreign(parts[-1])
    before, after = (
        {key: value for key, value in (_at(side, path) or {}).items() if not is_foreign(key)}
        for side in (old, new)
    )
    return before == after


def _version(number: Any) -> str:
    """Return the number of a version as text: Pulumi has the newest one as a float."""
    return "" if number is None else str(number).removesuffix(".0")


def _property(path: str) -> str:
    return str(next(iter(_parts(path))))


def _at(properties: Any, path: str) -> Any:
    """Return the value at a property path (`tags["a:b"]`, `networkInterfaces[1].deviceIndex`)."""
    value = properties
    for part in _parts(path):
        if isinstance(value, Mapping):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _parts(path: str) -> Iterator[str | int]:
    rest = path
    while rest:
        if rest.startswith("["):
            inside, _, rest = rest[1:].partition("]")
            yield inside.strip('"') if inside.startswith('"') else int(inside)
        else:
            rest = rest.removeprefix(".")
            end = min((i for i in (rest.find("."), rest.find("[")) if i >= 0), default=len(rest))
            yield rest[:end]
            rest = rest[end:]


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    if value == _UNKNOWN:
        return "(known after apply)"
    if isinstance(value, list):
        return f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
    return shorten(json.dumps(value), _LONGEST)


_DONE = ("same",)

Operations = Mapping[str, tuple[str, ...]]
"""The operations on each resource, by its URN."""


def planned_operations(plan: Path) -> Operations:
    """Return the operations in Pulumi's plan file (Pulumi 3.258.0, `preview --save-plan`)."""
    stored = json.loads(plan.read_text())["resourcePlans"]
    return {urn: tuple(each.get("steps") or _DONE) for urn, each in stored.items()}


def is_within(now: Operations, approved: Operations) -> bool:
    """Return whether `now` has no operation that `approved` lacks; done ones may be missing."""
    return all(steps in (_DONE, approved.get(urn, _DONE)) for urn, steps in now.items())
