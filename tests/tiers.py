"""The tiers of tests, each in the one after it: `make check`, `make test`, `make test-all`."""

from collections import Counter
from collections.abc import Container

import pytest

TIERS = ("check", "test", "test-all")


def tier(marks: Container[str]) -> str:
    """Return the first tier that has a test with these marks."""
    if "thorough" in marks:
        return "test-all"
    if "lab" in marks or "engine" in marks or "slow" in marks:
        return "test"
    return "check"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests each tier had, and how long they took, added up over all workers."""
    tests: Counter[str] = Counter()
    seconds = dict.fromkeys(TIERS, 0.0)
    reports = (report for kind in terminalreporter.stats.values() for report in kind)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            name = tier(report.keywords)
            tests[name] += report.when == "call"
            seconds[name] += report.duration
    for name in TIERS:
        if tests[name]:
            terminalreporter.write_line(f"{name}: {tests[name]} tests, {seconds[name]:.0f} s")
