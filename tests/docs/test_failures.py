"""Every test that the table of failures names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_of_the_table_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/failures.md").read_text())
    assert len(named) > 15
    for file, name in named:
        functions = [getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body]
        assert name in functions, f"{file}::{name}"
