"""A region on loopback: the lab's API without machines, in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.target import Target
from tests.infra.conftest import engine, here, worlds  # noqa: F401  fixtures are found by import
from tests.infra.region import CREDENTIALS, Worlds, child
from tests.nodes.conftest import site  # noqa: F401  as well


def _target(url: str, state: Path) -> Target:
    return Target(
        name="test",
        region="us-east-1",
        state=state / "gpuctl" / "test",
        endpoint=url,
        environment=CREDENTIALS,
        caller_address="198.18.255.1",
    )


@pytest.fixture(scope="session")
def asked_only() -> Iterator[str]:
    """The URL of a region that no test changes."""
    with child("lab.api") as (url, _):
        yield url


@pytest.fixture
def target(asked_only: str, tmp_path: Path) -> Target:
    """A region to ask, with a state folder of the test's own."""
    return _target(asked_only, tmp_path)


@pytest.fixture
def empty_region(tmp_path: Path, worlds: Worlds) -> Iterator[Target]:  # noqa: F811
    """A region of the test's own, with nothing in it."""
    with worlds.api(tmp_path) as (url, _):
        yield _target(url, tmp_path)
