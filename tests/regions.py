"""Fixtures for all tests: regions on loopback, each the lab's API without machines.

A worker of pytest has one process that serves fresh regions and one for their provider, whatever
folders its tests are in: their imports take some seconds of a processor.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.progress import silent
from config.target import Target
from infra.stack.installation import Engine, find_engine
from provision.aws.clients import forget_clients
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


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are called in the test's own process have credentials."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    forget_clients()  # a command has one environment, and its clients are those of it


@pytest.fixture
def aws(empty_region: Target, signed_in: None, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The empty region as AWS, for commands that are called in the test's own process."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(empty_region.endpoint))
    return empty_region


@pytest.fixture
def without_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulumi's engine is not installed, and cannot be: `down` finds resources by their tags."""
    refuse_downloads(monkeypatch)
    monkeypatch.delenv("GPUCTL_PULUMI", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folders = os.environ["PATH"].split(os.pathsep)
    others = [folder for folder in folders if not (Path(folder) / "pulumi").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(others))


def refuse_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request by HTTPS goes to a proxy that refuses."""
    # Port 1 of loopback refuses: no name is looked up and no packet leaves the machine.
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
