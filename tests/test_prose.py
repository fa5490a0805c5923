"""`scripts/lint-prose` finds the phrases to avoid, and only in prose."""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts/lint-prose"


def _lint(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, "."], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_page_is_read_without_its_code(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "The user is told `what it tells` at https://tells.example.\n"
        "```sh\ngpuctl tells\n```\n"
        "A stand-in stands in for it.\n"
        f"{'word ' * 25}\n"
        f"| {'cell ' * 25} |\n"
        "<!-- Below: written by `make docs`. -->\nIt tells.\n"
    )
    assert _lint(tmp_path) == (
        1,
        "page.md:1: 'told'; write: reported, prints, says\n"
        "page.md:6: 125 characters; break it at 110\n",
    )


def test_docstrings_comments_and_messages_are_read(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room/module.py").write_text(
        '"""A module that looks\nat files."""\n\n'
        "told = 'beside'  # the file beside it\n\n\n"
        'def read(told: str) -> str:\n    """What is read."""\n'
        '    return f"{told} is of its own kind"\n'
    )
    assert _lint(tmp_path) == (
        1,
        "room/module.py:1: 'looks at'; write: checks, inspects\n"
        "room/module.py:4: 'beside'; write: next to, in addition to\n"
        "room/module.py:8: 'What'; begin with a verb: Return, Report, Wait\n"
        "room/module.py:9: 'of its own'; write: its, or nothing\n",
    )


def test_names_that_do_not_say_what_they_hold_are_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "def there(here: int) -> list[int]:\n    found = [one for one in (here,)]\n"
        "    return found\n"
    )
    hint = "name it after what it holds"
    assert _lint(tmp_path) == (
        1,
        f"module.py:1: 'here'; {hint}\nmodule.py:1: 'there'; {hint}\n"
        f"module.py:2: 'found'; {hint}\nmodule.py:2: 'one'; {hint}\n",
    )


def test_an_exception_without_a_finding_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = SourceFileLoader("lint_prose", str(SCRIPT))
    spec = spec_from_file_location("lint_prose", loader=loader)
    assert spec
    script = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lint_prose", script)  # dataclasses look there
    loader.exec_module(script)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("The user is told.\n")
    pages = ("docs/page.md", "docs/no-such-page.md")
    assert script.of_project(tmp_path, pages) == [
        "scripts/lint-prose: docs/no-such-page.md has no finding; remove it from EXCEPTIONS"
    ]
