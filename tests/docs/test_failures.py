"""The table of failures: every test that it names exists, and each row has one on machines."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/look-up/failures.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
MARKED = re.compile(r"^pytestmark = .*\bpytest\.mark\.lab\b", re.MULTILINE)
ON_MACHINES = re.compile(r"tests/e2e/.*|tests/engine/.*on_machines\.py")


def test_the_tests_of_the_table_exist() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 25
    for file, name in named:
        functions = [
            getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body
        ]
        assert name in functions, f"{file}::{name}"


def test_each_row_has_a_test_on_machines() -> None:
    table = PAGE.partition("## The table\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]  # without its head
    assert len(rows) > 20
    for row in rows:
        files = [file for file, _ in NAMED.findall(row) if ON_MACHINES.fullmatch(file)]
        assert files, row
        for file in files:
            assert MARKED.search((ROOT / file).read_text()), file
