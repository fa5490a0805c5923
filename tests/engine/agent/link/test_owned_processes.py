"""Processes that a supervisor starts for its nodes: each ends, however its caller ends."""

import asyncio
import contextlib
import os
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from engine.agent.head import save_to_shared
from engine.agent.link.launcher import HELD, Units
from engine.agent.link.workers import Workers
from tests.engine.bare_plans import bare_node, bare_plan

REACHED = """echo '{"kind": "reached"}'; """


class Launcher:
    """Nodes whose ssh ends once it has reached them, and hangs when it is tried again."""

    address = "127.0.0.1"

    def __init__(self, first: str = f"{REACHED} exit 255") -> None:
        self._first = first
        self.processes: list[Process] = []
        self.has_opened, self.hangs = asyncio.Event(), asyncio.Event()

    async def open(self, rank: int) -> Process:
        process = await self._spawn(self._first)
        self.has_opened.set()
        return process

    async def attach(self, rank: int) -> Process:
        process = await self._spawn("exec sleep 1000")
        self.hangs.set()
        return process

    async def save(self, rank: int | None) -> Process:
        return await self.attach(0)

    async def _spawn(self, script: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", script), stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
        self.processes.append(process)
        return process


def workers_of(launcher: Launcher, greet: Any) -> Workers:
    ignore: Any = lambda *_: None  # noqa: E731
    order: Any = lambda _: {"do": "nothing"}  # noqa: E731
    return Workers(launcher, order, greet, ignore, lambda: False, {})  # type: ignore[arg-type]


def test_the_last_connection_to_a_lost_node_ends_with_the_run() -> None:
    """The run may end while its supervisor still tells a lost node's worker to leave."""

    async def end_early() -> list[int | None]:
        launcher = Launcher()
        workers = workers_of(launcher, lambda _: [{"do": "attach"}])
        await workers.attend(0)
        dismissing = asyncio.ensure_future(workers.dismiss(0))
        await launcher.hangs.wait()
        dismissing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dismissing
        await workers.close()
        return [process.returncode for process in launcher.processes]

    assert asyncio.run(end_early()) == [255, -9]


def test_a_connection_that_cannot_be_used_is_ended() -> None:
    def fail(_: int) -> Any:
        raise ValueError("no greeting")

    async def greet() -> list[int | None]:
        launcher = Launcher()
        workers = workers_of(launcher, fail)
        await workers.attend(0)
        with pytest.raises(ValueError, match="no greeting"):
            await workers.dismiss(0)
        await workers.close()
        return [process.returncode for process in launcher.processes]

    assert asyncio.run(greet()) == [255, -9]


def test_a_call_that_is_cancelled_leaves_no_task_behind() -> None:
    async def cancel() -> set[str]:
        launcher = Launcher("exec sleep 1000")
        workers = workers_of(launcher, lambda _: [{"do": "attach"}])
        attending = asyncio.ensure_future(workers.attend(0))
        await launcher.has_opened.wait()
        await asyncio.sleep(0.1)  # it waits for the worker's first words
        attending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await attending
        await workers.close()
        return {str(task.get_coro()) for task in asyncio.all_tasks() - {asyncio.current_task()}}

    assert asyncio.run(cancel()) == set()


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the id of an `ssh` that hangs."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid\n")
    program.write_text(program.read_text() + "exec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path / "pid"


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_a_question_to_a_node_that_hangs_ends_with_the_run(hanging: Path) -> None:
    """Whether a lost node is back; the run may be stopped meanwhile."""

    async def ask() -> None:
        units = Units(hanging.parent, hanging.parent, ("10.0.0.2",), ("10.0.0.1", "10.0.0.2"))
        asking = asyncio.ensure_future(units.is_back("10.0.0.2"))
        await asyncio.to_thread(wait_for, hanging)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking

    asyncio.run(ask())
    assert not Path(f"/proc/{hanging.read_text().strip()}").exists()


def test_copying_that_hangs_ends_with_its_supervisor(tmp_path: Path) -> None:
    async def save() -> list[int | None]:
        launcher: Any = Launcher()
        plan = bare_plan([bare_node(0)], saved=str(tmp_path))
        copying = asyncio.ensure_future(save_to_shared.save_run(plan, tmp_path, launcher, 60))
        await launcher.hangs.wait()
        copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copying
        return [process.returncode for process in launcher.processes]

    assert asyncio.run(save()) == [-9]
