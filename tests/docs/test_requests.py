"""gpuctl's column in docs/look-up/requests.md is what the golden requests have."""

import re
from itertools import groupby

import pytest

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
