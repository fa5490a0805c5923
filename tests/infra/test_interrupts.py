"""Ctrl-C and kill -9 half-way: what was made is known, and the next destroy removes it."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest

from config.cluster.resolved import Resolved
from config.errors import GpuctlError, InfraError
from config.progress import Progress, silent
from config.target import Target
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from provision.aws.resources import find_all
from provision.removal.sweep import sweep
from tests.infra.region import Region, client, resolved
from tests.interrupts import INTERRUPTIBLE
from tests.processes import wait_for_end

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


@contextmanager
def doing(
    what: Literal["up", "down"], here: Region, engine: Engine, until: str
) -> Iterator[subprocess.Popen[str]]:
    """A client that has reported the line `until`."""
    target = {**vars(here.target), "state": str(here.target.state)}
    process = subprocess.Popen(
        [
            *INTERRUPTIBLE,
            sys.executable,
            "-m",
            "tests.infra.client",
            what,
            str(engine.path),
            json.dumps(target),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.strip() == until:
                break
        else:
            pytest.fail(f"the client never said {until}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def child_of(pid: int, command: str = "") -> int:
    """The engine that the client started; of several children the one of that command."""
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=True
    )
    return next(int(line.split()[0]) for line in found.stdout.splitlines() if command in line)


def running(here: Region) -> int:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    return len(client(here.target).describe_instances(Filters=states)["Reservations"])  # type: ignore[arg-type]


def test_ctrl_c_says_what_exists_and_destroy_removes_it(here: Region, engine: Engine) -> None:
    with doing("up", here, engine, "aws:ec2/launchTemplate:LaunchTemplate nodes start") as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        last = process.stdout.read().splitlines()[-1]
    assert last.startswith("Interrupted: interrupted: ")
    assert last.endswith(
        "run the same command again to continue, or `gpuctl down demo` to remove them"
    )
    stack = Stack("demo", here.target, engine)
    assert stack.exists()
    stack.destroy()
    assert client(here.target).describe_vpcs()["Vpcs"] == []


def test_after_ctrl_c_up_goes_on(here: Region, engine: Engine) -> None:
    with doing("up", here, engine, "aws:ec2/launchTemplate:LaunchTemplate nodes start") as process:
        process.send_signal(signal.SIGINT)
        process.wait()
    fleet = Stack("demo", here.target, engine).up(resolved(here.target))
    assert running(here) == 1 + len(fleet.nodes)


def remove_unknown_and_destroy(target: Target, stack: Stack) -> None:
    """What was just being made Pulumi does not know; once it is gone the rest goes.

    The provider may still be making it when the engine is dead: hence several rounds.
    """
    for left in reversed(range(5)):
        try:
            sweep(target, "demo", "", silent)
            stack.destroy()
        except GpuctlError:
            if not left:
                raise
        else:
            return


@pytest.mark.parametrize("engine_too", [False, True])
def test_destroy_after_kill_half_way_up(here: Region, engine: Engine, engine_too: bool) -> None:
    line = "aws:ec2/natGateway:NatGateway nat start"
    with doing("up", here, engine, line) as process:
        with here.silent():
            orphan = child_of(process.pid)
            process.kill()
            if engine_too:
                os.kill(orphan, signal.SIGKILL)
                wait_for_end(orphan)
        stack = Stack("demo", here.target, engine)
        assert stack.exists(), "a status can tell"
        with suppress(InfraError):
            stack.destroy()
        wait_for_end(orphan)
        remove_unknown_and_destroy(here.target, stack)
        assert not stack.exists()
        assert find_all(here.target, "demo") == []
        assert client(here.target).describe_vpcs()["Vpcs"] == []


@pytest.mark.parametrize("engine_too", [False, True])
def test_destroy_after_kill_half_way_down(here: Region, engine: Engine, engine_too: bool) -> None:
    stack = Stack("demo", here.target, engine)
    stack.up(resolved(here.target))
    steps: list[Progress] = []
    with doing("down", here, engine, "aws:ec2/instance:Instance node0 start") as process:
        with here.silent():
            orphan = child_of(process.pid)
            process.kill()
            if engine_too:
                os.kill(orphan, signal.SIGKILL)
        stack.destroy(steps.append)
        wait_for_end(orphan)
    assert running(here) == 0
    assert client(here.target).describe_vpcs()["Vpcs"] == []
    assert not stack.exists()


def test_preview_goes_on_after_a_dead_engines_lock(here: Region, engine: Engine) -> None:
    with doing("up", here, engine, "aws:ec2/vpc:Vpc vpc done") as process:
        orphan = child_of(process.pid)
        os.kill(orphan, signal.SIGKILL)
        process.wait()
    plan = Stack("demo", here.target, engine).preview(resolved(here.target))
    # How much the engine made before its end depends on the machine's load.
    assert {change.op for change in plan.changes} <= {"create", "same"}
    assert "node0" in {change.name for change in plan.changes if change.op == "create"}


# Coroutines of the SDK are left where its program is broken off; collected, they ask the engine.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_ctrl_c_while_aws_is_asked_ends_the_engine_of_the_preview(
    here: Region, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack("demo", here.target, engine)
    asked = threading.Event()
    begun: list[int] = []

    def wait_for(cluster: Future[Resolved]) -> asyncio.Future[Resolved]:
        begun.append(child_of(os.getpid(), str(engine.path)))
        asked.set()
        return wait_for_it(cluster)

    wait_for_it = asyncio.wrap_future
    monkeypatch.setattr(asyncio, "wrap_future", wait_for)  # the first that a program calls
    with pytest.raises(KeyboardInterrupt), stack.start_preview():
        assert asked.wait(120)
        raise KeyboardInterrupt
    wait_for_end(begun[0])
    gc.collect()  # here, and not in whichever test comes next
    assert not stack.exists()
    monkeypatch.undo()
    assert stack.preview(resolved(here.target)).counts == {"create": 18}
