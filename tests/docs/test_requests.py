"""gpuctl's column in docs/look-up/requests.md is what the golden requests have."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from provision.permissions.actions import NEEDS, Feature
from tests.docs.pages import HOME
from tests.plans.requests import GOLDEN, LAUNCH, TYPES

PAGE = (HOME / "docs/look-up/requests.md").read_text()
CLAIM = "CreateCapacityReservation"
NOT_SENT = "not sent"


def fields(file: str) -> dict[str, dict[str, list[str]]]:
    """Each field of the golden requests without indexes, and its values; a tag is its key."""
    found: dict[str, dict[str, list[str]]] = {}
    operation = ""
    for line in (GOLDEN / f"{file}.txt").read_text().splitlines():
        if not line.startswith(" "):
            operation = line
            continue
        path, _, value = re.sub(r"\[\d+\]", "[]", line.strip()).partition(" = ")
        if (tag := path.partition(".Tags[].")) and tag[1]:
            path, value = f"{tag[0]}.Tags[]", tag[2]
        values = found.setdefault(operation, {}).setdefault(path, [])
        if value not in values:
            values.append(value)
    return found


def table(section: str) -> dict[str, str]:
    """The first two columns of a section's table: the fields, and what gpuctl sends."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip("|` "): row[1].strip("| ") for row in rows[2:]}


@pytest.mark.parametrize(
    ("operation", "file"), [*((name, TYPES[0]) for name in LAUNCH), (CLAIM, "claims")]
)
def test_each_field_that_gpuctl_sends_is_in_the_table(operation: str, file: str) -> None:
    sent = fields(file)[operation]
    shown = {path: cell for path, cell in table(operation).items() if cell != NOT_SENT}
    assert shown == {
        path: ", ".join(f"`{value}`" for value in values) for path, values in sent.items()
    }


@pytest.mark.parametrize("name", TYPES[1:])
def test_other_types_have_the_same_fields(name: str) -> None:
    for operation, sent in fields(name).items():
        assert set(sent) == set(fields(TYPES[0])[operation])


def layout(name: str) -> str:
    """The interfaces of the golden request; cards after each other with the same are one."""
    text = (GOLDEN / f"{name}.txt").read_text()

    def values(field: str) -> list[str]:
        return re.findall(rf"NetworkInterfaces\[\d+\]\.{field} = (.+)", text)

    places = zip(
        map(int, values("NetworkCardIndex")),
        values("DeviceIndex"),
        values("InterfaceType"),
        strict=True,
    )
    cells = []
    for (first, device, kind), group in groupby(places, lambda one: (one[0] > 0, *one[1:])):
        cards = [card for card, _, _ in group]
        shown = f"{cards[0]}-{cards[-1]}" if first else str(cards[0])
        cells.append(f"`{shown}:{device} {kind}`")
    return ", ".join(cells)


def test_the_interfaces_of_each_type() -> None:
    assert table("Interfaces") == {name: layout(name) for name in TYPES}


# What the provider asks

PHASES = ("create", "read", "update", "delete")


def called_by(*files: Path) -> set[str]:
    """boto3's names of methods, and others, that modules of the lab's provider have."""
    trees = [ast.parse(file.read_text()) for file in files]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def only_under_a_policy() -> set[str]:
    """The operations that the lab's provider sends only while a policy is enforced."""
    folder = HOME / "lab/provider"
    further = folder / "further_requests.py"
    always = called_by(*(file for file in folder.glob("*.py") if file != further))
    return {name.replace("_", "") for name in called_by(further) - always}


def needed_by(resource_type: str, feature: Feature | None, phase: str) -> tuple[str, ...]:
    (need,) = (
        need
        for need in NEEDS
        if (need.resource_type, need.feature, need.phase) == (resource_type, feature, phase)
    )
    return need.actions


def provider_rows() -> Iterator[str]:
    """The table: an operation with a star is one that the lab's provider sends under a policy."""
    rare = only_under_a_policy()
    types = dict.fromkeys((need.resource_type, need.feature) for need in NEEDS if need.resource_type)
    for name, feature in types:
        cells = []
        for phase in PHASES:
            actions = needed_by(name, feature, phase)
            operations = [action.partition(":")[2] for action in actions]
            shown = [one for one in operations if one not in ("CreateTags", "DeleteTags")]
            stars = (f"`{one}`{'*' if one.lower() in rare else ''}" for one in shown)
            cells.append(", ".join(stars) or "-")
        kind = name.partition(":")[2].replace("/", ".", 1)
        kind = ".".join((kind.partition(".")[0], kind.partition(":")[2]))
        kind += ", spot" if feature == "spot" else ""
        yield f"| `{kind}` | {' | '.join(cells)} |"


def test_the_calls_of_the_provider_are_those_of_the_code() -> None:
    text = PAGE.partition("\n## What the provider asks\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == list(provider_rows())
