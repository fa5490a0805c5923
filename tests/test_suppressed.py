"""Errors that are suppressed: beside each stands why nothing is lost."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    *("gpuctl", "cli", "config", "engine", "formats"),
    *("infra", "lab", "nodes", "operations", "provision"),
)
SILENT = re.compile(r"\bsuppress\(.*\):|ignore_errors=True|return_exceptions=True")


def test_every_suppression_says_why() -> None:
    unexplained = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            lines = path.read_text().splitlines()
            for number, line in enumerate(lines, 1):
                before = lines[number - 2].strip() if number > 1 else ""
                is_silent = SILENT.search(line) or (
                    line.strip().startswith("pass") and before.startswith("except")
                )
                if is_silent and "#" not in line and "#" not in before:
                    unexplained.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert unexplained == []
