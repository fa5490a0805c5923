"""Fixtures for all tests: regions on loopback, each the lab's API without machines.

A worker of pytest has one process that serves fresh regions and one for their provider, whatever
folders its tests are in: their imports take some seconds of a processor.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.progress import silent
from config.target import Target
from infra.stack.installation import Engine, find_engine
from tests.infra.region import CREDENTIALS, Region, Worlds, child


@pytest.fixture(scope="session")
def engine() -> Engine:
    return find_engine(silent)


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    started = Worlds()
    yield started
    started.end()


@pytest.fixture
def here(tmp_path: Path, worlds: Worlds) -> Iterator[Region]:
    """A region of the test's own and its provider, with nothing in it."""
    with worlds.region(tmp_path) as made:
        yield made


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
def empty_region(tmp_path: Path, worlds: Worlds) -> Iterator[Target]:
    """A region of the test's own, with nothing in it."""
    with worlds.api(tmp_path) as (url, _):
        yield _target(url, tmp_path)
