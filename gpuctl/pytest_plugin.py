"""Fixtures for pytest: clusters of the lab, for tests of a team's own jobs (docs/do/pytest.md)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import gpuctl
from lab.places import Places


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest ignore that pulumi_aws warns of classes that it renamed, used or not."""
    config.addinivalue_line("filterwarnings", r"ignore:aws\.:DeprecationWarning")


_WAIT_AND_STOP = 'cat; "$@" && rm -r "$0" "$0.lock"'


@pytest.fixture(scope="session")
def gpuctl_region(tmp_path_factory: pytest.TempPathFactory) -> Iterator["gpuctl.Lab"]:
    """Start a lab for this process of pytest; it ends with it, also when pytest is killed.

    Clusters, runs and logs are below pytest's temporary folder, apart from the user's own.
    """
    folder = tmp_path_factory.mktemp("gpuctl")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPUCTL_STATE", str(folder))
        lab = gpuctl.Lab(f"pytest-{os.getpid()}")
        with _stopped_at_the_end(lab, folder / "stop.log"):
            lab.start()
            yield lab


@pytest.fixture
def gpuctl_cluster(
    gpuctl_region: "gpuctl.Lab", tmp_path: Path
) -> Iterator[Callable[..., "gpuctl.Cluster"]]:
    """Return a function that makes a cluster: `gpuctl_cluster(nodes=4, instance_type=…)`.

    Its arguments are fields of a cluster file; without any it has two p4d.24xlarge. It is ready
    when the function returns, and is removed when the test ends.
    """
    numbers = count(1)
    with ExitStack() as clusters:

        def up(**fields: Any) -> "gpuctl.Cluster":
            name = f"test-{next(numbers)}"
            defaults = {"name": name, "nodes": 2, "instance_type": "p4d.24xlarge"}
            file = tmp_path / f"{name}.yaml"
            file.write_text(json.dumps(defaults | fields))  # JSON is YAML
            made = gpuctl.up(file, no_lease=True, lab=gpuctl_region.name)
            return clusters.enter_context(made)

        yield up


@pytest.fixture
def gpuctl_fault(
    gpuctl_region: "gpuctl.Lab", gpuctl_cluster: Callable[..., "gpuctl.Cluster"]
) -> Iterator[Callable[..., None]]:
    """Return a function that sets a fault of the lab, as `gpuctl lab fault set` does.

    `gpuctl_fault("no-capacity", "us-east-1a")`. All are cleared when the test ends.
    """
    del gpuctl_cluster  # clusters are removed after the faults, which may keep them from it

    def set_fault(name: str, *arguments: str) -> None:
        gpuctl_region.set_fault(name, arguments)

    yield set_fault
    gpuctl_region.clear_faults()


@contextmanager
def _stopped_at_the_end(lab: "gpuctl.Lab", log: Path) -> Iterator[None]:
    """Stop the lab after the block.

    A process does it that waits for the end of a pipe, which also comes when this one is killed.
    """
    stop = [sys.executable, "-m", "gpuctl", "--lab-name", lab.name, "lab", "stop"]
    files = Places(lab.name).runtime  # with the daemon's log, which a lab leaves
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["/bin/sh", "-c", _WAIT_AND_STOP, files, *stop],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for pytest
        ) as stopping,
    ):
        yield
    if stopping.returncode:
        pytest.fail(f"the lab {lab.name} was not stopped: {log.read_text()}", pytrace=False)
