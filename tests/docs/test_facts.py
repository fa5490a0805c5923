"""Figures and messages in the pages are those of the code."""

import ast
import json
import re
from functools import cache

import botocore.session
import pytest

from config.catalogue.aws_codes import AWS_CODES
from config.catalogue.instance_types import (
    BASTION_PRICE_USD_H,
    NAT_PRICE_USD_H,
    PRICES_DATE,
    PUBLIC_IPV4_PRICE_USD_H,
    catalogue,
    price_usd_h,
)
from lab.fault_kinds import FAULTS
from provision.permissions.policy import OPEN_CHANNEL
from tests.docs.pages import HOME, PAGES

SERVICES = {
    "elasticfilesystem": "efs",
    "fsx": "fsx",
    "iam": "iam",
    "pricing": "pricing",
    "servicequotas": "service-quotas",
    "ssm": "ssm",
    "ec2": "ec2",
}
"""IAM's names of the services, and botocore's."""


def _page(name: str) -> str:
    return (HOME / name).read_text()


def test_the_codes_that_the_lab_refuses_with() -> None:
    part = (
        _page("docs/look-up/errors.md")
        .partition("## In the lab")[2]
        .partition("For the other codes")[0]
    )
    named = re.findall(r"`([A-Z][A-Za-z.]+)`", part)
    assert named == sorted({kind.code for kind in FAULTS.values() if kind.code})
    assert set(named) < set(AWS_CODES)


def test_costs_and_quotas() -> None:
    page = _page("docs/start/getting-started.md")
    rest = BASTION_PRICE_USD_H + NAT_PRICE_USD_H + 2 * PUBLIC_IPV4_PRICE_USD_H
    costs = re.findall(r"^\| 2 x `(\S+)` \| ([0-9.]+) \|$", page, re.MULTILINE)
    assert len(costs) == 3
    assert costs == [(name, f"{2 * (price_usd_h(name) or 0) + rest:.2f}") for name, _ in costs]
    assert PRICES_DATE in page
    quotas = re.findall(r"^\| 2 x `(\S+)` \| `(\S+)`, .* \| ([0-9]+) \|$", page, re.MULTILINE)
    known = {name: catalogue()[name] for name, _ in costs}
    assert quotas == [(n, e.quota.on_demand, str(2 * e.vcpus)) for n, e in known.items()]


def test_permissions_are_actions_that_exist() -> None:
    policy = json.loads((HOME / "tests/provision/golden/policies/all.json").read_text())
    actions = {action for one in policy["Statement"] for action in one["Action"]}
    unknown = []
    for action in sorted(actions - {"iam:PassRole", OPEN_CHANNEL}):
        service, _, operation = action.partition(":")
        model = botocore.session.get_session().get_service_model(SERVICES[service])
        if operation not in model.operation_names:
            unknown.append(action)
    assert unknown == []


@cache
def _texts() -> tuple[str, ...]:
    """Return all texts in the code, those of f-strings with `…` where a value comes."""
    ours = ("gpuctl", "cli", "config", "engine", "infra", "lab", "nodes", "operations", "provision")
    files = [file for room in ours for file in (HOME / room).rglob("*.py")]
    found = [f.read_text() for f in (HOME / "provision/setup/software/steps").glob("*.sh")]
    for node in (node for f in files for node in ast.walk(ast.parse(f.read_text()))):
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
            found.append("".join(str(part) for part in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return tuple(found)


def _symptoms() -> list[str]:
    rows = re.findall(r"^\| `([^`]+)` \|", _page("docs/look-up/troubleshooting.md"), re.MULTILINE)
    return [row for row in rows if " " in row and not row.startswith("gpuctl")]


@pytest.mark.parametrize("symptom", _symptoms())
def test_a_symptom_is_a_message_of_gpuctl(symptom: str) -> None:
    """Every piece between `…` is in one of the code's texts."""
    pieces = [piece.strip(" :;`") for piece in symptom.split("…")]
    long = [piece for piece in pieces if len(piece) > 3]
    assert long
    missing = [piece for piece in long if not any(piece in text for text in _texts())]
    assert missing == []


@pytest.mark.parametrize(
    ("folder", "most"), [("start", 1500), ("do", 1500), ("understand", 1500), ("develop", 1300)]
)
def test_pages_are_short(folder: str, most: int) -> None:
    """Pages to look something up may be longer."""
    pages = list((HOME / "docs" / folder).glob("*.md"))
    assert pages
    long = {page.name: len(page.read_text().split()) for page in pages}
    assert {name: words for name, words in long.items() if words > most} == {}


@pytest.mark.parametrize("page", PAGES)
def test_each_table_has_a_head(page: str) -> None:
    """A gap between two rows ends the table: what follows is shown as text."""
    text = re.sub(r"^```.*?^```", "", _page(page), flags=re.MULTILINE | re.DOTALL)
    lines = ["", *text.splitlines(), ""]
    begins = [
        after
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
        if line.startswith("|") and not before.startswith("|")
    ]
    assert [line for line in begins if not line.startswith("| ---")] == []


SECURITY = "tests/security"
BOUNDARIES = (
    *("files that you name", "your environment", "jobs print", "nodes", "heads", "bucket"),
    *("Pulumi's state", "AWS permissions (IAM) and the account", "the lab's machines"),
)


def test_each_boundary_has_a_row_that_names_tests() -> None:
    rows = [
        row.strip("|").split(" | ")
        for row in _page("docs/understand/security.md").split("\n## ")[1].splitlines()
        if row.startswith("| ") and not row.startswith(("| boundary", "| ---"))
    ]
    for boundary in BOUNDARIES:
        assert any(boundary in row[0] for row in rows), boundary
    assert {len(row) for row in rows} == {5}, "each has what is believed and what is checked"
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[4])}
    missing = {
        name for name in named if not any((HOME / at / name).is_file() for at in ("", SECURITY))
    }
    assert missing == set()
    files = {path.name for path in (HOME / SECURITY).glob("test_*.py")}
    assert files <= named, "each file of tests/security is of a boundary"
