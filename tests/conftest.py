"""How the suite is spread over workers (pytest-xdist), and the evidence of what failed.

A file's tests stay on one worker, because they may share what is dear to make. Files whose long
tests share nothing are listed: each of their tests goes to whoever is free. What takes longest
begins first.
"""

import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

# Pulumi's gRPC would otherwise start its threads again in every process that a test forks, and
# abort where that one has closed gRPC's files: heartbeats do. To be said before gRPC is imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
os.environ["TERM"] = "xterm"  # a dumb one gets other lines

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from config.settings import settings
from tests import aws_calls, connections, evidence, noted_pauses, regions, terminals, tiers

# A shell starts what runs in the background with SIGINT ignored, and the tests' commands would
# inherit that: Ctrl-C would not end them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without the tester's own HOME, his shell's profile and his settings take no part in a test: jobs
# of process tests begin with a login. `python3` is the interpreter of the tests, and no wrapper of
# it that chooses a version. Workers inherit both.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # images, the engine
    if engine := settings()["pulumi"].value:
        os.environ["GPUCTL_PULUMI"] = str(Path(engine).expanduser())
    os.environ["HOME"] = tempfile.mkdtemp(prefix="gpuctl-home-")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)

# No test asserts on time, and a machine may have load.
hypothesis.settings.register_profile("gpuctl", deadline=None)
hypothesis.settings.load_profile("gpuctl")

SPREAD = {
    f"tests/{file}.py"
    for file in (
        *("e2e/test_interrupts", "e2e/test_machines"),
        *("e2e/test_main_job", "e2e/test_network", "e2e/test_pytest_plugin", "e2e/test_smoke"),
        "e2e/test_software",
        *("e2e/test_spot", "e2e/test_storage", "e2e/test_two_labs", "lab/test_lifecycle"),
        *("infra/test_interrupts", "infra/test_network", "infra/test_stack", "infra/test_storage"),
        "leaks/test_leaks",
        "provision/test_launch",
    )
}
"""Files whose tests share no cluster and no machine."""

TOGETHER = {
    "tests/e2e/pair/test_clocks.py": "the cluster of two nodes",
    "tests/e2e/pair/test_containers.py": "the cluster of two nodes",
    "tests/e2e/pair/test_debug.py": "the cluster of two nodes",
    "tests/e2e/pair/test_foreign_files.py": "the cluster of two nodes",
    "tests/e2e/pair/test_gpus.py": "the cluster of two nodes",
    "tests/e2e/pair/test_jobs.py": "the cluster of two nodes",
    "tests/engine/agent/node/test_disks_on_machines.py": "the engine's two machines",
    "tests/engine/agent/node/test_enter_machines.py": "the engine's two machines",
    "tests/engine/agent/metrics/test_metrics_on_machines.py": "the engine's two machines",
    "tests/engine/session/test_on_machines.py": "the engine's two machines",
}
"""Files that share a fixture wider than a file."""

Found = TypeVar("Found")

FIRST = "tests/plans/test_plans.py"
"""The longest file: its clusters live in one region, several at once."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped here
    """Sends what belongs together to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


# Marks of xdist_group would say the same, but xdist 3.8 does not see them with pytest 9.2.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(aws_calls)
    config.pluginmanager.register(noted_pauses)
    config.pluginmanager.register(connections)
    config.pluginmanager.register(evidence)
    config.pluginmanager.register(regions)
    config.pluginmanager.register(terminals)
    config.pluginmanager.register(tiers)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # What is imported and collected stays until the end: no garbage collection has to search it.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if isinstance(collector, pytest.Directory):
        report.result = from_own_place(report.result)
    return report


def from_own_place(found: list[Found]) -> list[Found]:
    """Return what a folder has, from another place on each worker, and round to its beginning.

    Every worker imports every file. In a fresh clone all of them would compile the same files at
    the same time; now each compiles a share, and loads what the others compiled.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    number = int(worker.removeprefix("gw")) if re.fullmatch(r"gw\d+", worker) else 0
    first = len(found) * number // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return [*found[first:], *found[:first]]


def pytest_runtest_setup() -> None:
    os.umask(0o022)  # commands that an earlier test ran in this process have set theirs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sizes = Counter(group(item.nodeid) for item in items)
    turns = {group(item.nodeid): 3 for item in items}
    for item in items:
        turns[group(item.nodeid)] = min(turns[group(item.nodeid)], _turn(item))

    def place(item: pytest.Item) -> tuple[int, int, str, str]:
        name = group(item.nodeid)
        file = item.nodeid.partition("::")[0]  # the same order on every worker
        return turns[name], -sizes[name], name, file

    items.sort(key=place)


def group(nodeid: str) -> str:
    """Return what stays on one worker with the test: its file, more, or the test alone."""
    file = nodeid.partition("::")[0]
    return nodeid if file in SPREAD else TOGETHER.get(file, file)


def _turn(item: pytest.Item) -> int:
    if item.nodeid.startswith(FIRST):
        return 0
    return 1 if item.get_closest_marker("lab") else 2 if item.get_closest_marker("engine") else 3
