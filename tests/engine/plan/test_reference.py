"""The page about modes has every type."""

from config.generated_page import DOCS
from config.run.run_file import RUN_TYPES


def test_modes_page_has_every_type() -> None:
    table = (DOCS / "look-up/modes.md").read_text().partition("## Roles")[0]
    assert all(f"| `{name}` | " in table for name in RUN_TYPES)
