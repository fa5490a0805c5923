"""The generated pages say what the code does."""

from pathlib import Path

import pytest

from config.file_reference import DOCS
from config.run.run_file import RUN_TYPES
from engine.plan.mode_reference import MARKER, pages, replace_reference


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_page_is_generated(path: Path) -> None:
    text = path.read_text()
    assert MARKER in text
    assert text == replace_reference(text, pages()[path]), "run `make docs`"


def test_modes_page_has_every_type() -> None:
    table = (DOCS / "modes.md").read_text().partition("## Roles")[0]
    assert all(f"| `{name}` | " in table for name in RUN_TYPES)
