"""The tiers of tests, each in the one after it: `make check`, `make test`, `make test-all`."""

from collections import Counter

import pytest

TIERS = ("check", "test", "test-all")


def tier(item: pytest.Item) -> str:
    """Return the first tier that has the test."""
    marks = {mark.name for mark in item.iter_markers()}
    if "thorough" in marks:
        return "test-all"
    return "test" if marks & {"slow", "engine", "lab"} else "check"


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.append(("tier", tier(item)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests each tier had, and how long they took, added up over all workers."""
    tests: Counter[str] = Counter()
    seconds = dict.fromkeys(TIERS, 0.0)
    reports = (report for kind in terminalreporter.stats.values() for report in kind)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            name = dict(report.user_properties).get("tier", TIERS[0])
            tests[str(name)] += report.when == "call"
            seconds[str(name)] += report.duration
    for name in TIERS:
        if tests[name]:
            terminalreporter.write_line(f"{name}: {tests[name]} tests, {seconds[name]:.0f} s")
