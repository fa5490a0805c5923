"""How the suite is spread over workers (pytest-xdist), and the evidence of what failed.

Tests that share what is dear to make stay together: those of a module with a fixture of its own,
those of one set of machines. Every other test of a lab or of Pulumi's engine is given to whoever is
free, and so are the files of quick tests. What takes longest begins first.
"""

from collections import Counter

import pytest

from tests import evidence

ONE_PER_WORKER = {"gpuctl"}
"""Fixtures wider than a module that every worker makes once: its lab."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(evidence)


@pytest.hookimpl(tryfirst=True)  # before xdist takes the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (group := _group(item)):
            item.add_marker(pytest.mark.xdist_group(group))
    sizes = Counter(_name(item) for item in items)
    items.sort(key=lambda item: (_turn(item), -sizes[_name(item)], _name(item)))


def _group(item: pytest.Item) -> str | None:
    """Return what must stay together with the test, None for a test that may go anywhere."""
    file = item.nodeid.partition("::")[0]
    if not _is_long(item):
        return file
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009  (untyped)
    for name, (*_, used) in definitions.items():
        if used.scope == "module":
            return file
        if used.scope == "package" and name not in ONE_PER_WORKER:
            return str(used.baseid)
    return None


def _name(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else item.nodeid


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("lab", "engine"))


def _turn(item: pytest.Item) -> int:
    """Golden plans begin first: they are one group, and the longest."""
    if _name(item) == "plans":
        return 0
    return 1 if item.get_closest_marker("lab") else 2 if _is_long(item) else 3
