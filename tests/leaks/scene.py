"""One point: a cluster, the command, the kill, the remedy, and what is left."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from config.target import Target
from tests.infra.region import CREDENTIALS, REGION, Worlds, target_of
from tests.leaks.account import inventory
from tests.leaks.client import MARK, NAME, Does, carry_out
from tests.leaks.points import Point, Shape

LIMIT_S = 300.0
ENDS_S = 20.0
"""A process that nobody waits for has this long to notice that it is not needed."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.leaks.preloaded"])

KEPT = ("costs.jsonl", "pulumi/.pulumi/meta.yaml", "runs/runs.sqlite")
"""What is kept when no cluster exists (docs/look-up/places.md), relative to the state folder."""


class Scene:
    """A region of its own and a machine's state, scratch and processes, in the folder."""

    def __init__(self, worlds: Worlds, folder: Path, url: str, api_pid: int) -> None:
        self._worlds, self._folder, self._url, self._api = worlds, folder, url, api_pid
        self._provider = ExitStack()
        (folder / "tmp").mkdir()
        self.renew_provider()
        self._before = self.account()

    def renew_provider(self) -> None:
        """Serve a provider; it is another process if the one before was killed."""
        self._provider.close()
        faults = self._folder / "faults.json"
        serving = self._worlds.provider(self._url, faults)
        port, self.provider = self._provider.enter_context(serving)
        self.target: Target = target_of(self._folder / "state", self._url, port)

    def close(self) -> None:
        """End the provider and all processes of the point."""
        self._provider.close()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def account(self) -> set[str]:
        """Return what exists in the account."""
        return inventory(REGION, self._url, CREDENTIALS)

    def begin(self, does: Does, shape: Shape) -> BaseProcess:
        """Begin a command."""
        client = _PROCESSES.Process(target=carry_out, args=(does, shape, self.target, self._folder))
        client.start()
        return client

    def complete(self, does: Does, shape: Shape) -> int | None:
        """Carry a command out to its end; return its exit code."""
        client = self.begin(does, shape)
        client.join(LIMIT_S)
        return client.exitcode

    def output(self, does: Does) -> str:
        """Return what the command has printed."""
        return (self._folder / f"{does}.log").read_text()

    def await_moment(self, point: Point) -> BaseProcess:
        """Begin the point's command; return it at its moment, when the API answers nobody."""
        draft = self._folder / "moment"
        draft.write_text(json.dumps({"call": point.call, "is_done": point.is_done}))
        draft.rename(self._folder / "moment.json")
        client = self.begin(point.command, point.shape)
        while not os.waitid(os.P_PID, self._api, os.WSTOPPED | os.WNOHANG):
            if not client.is_alive():
                calls = (self._folder / "calls").read_text()
                raise AssertionError(
                    f"{point}: it ended after {calls} calls\n{self.output(point.command)}"
                )
            time.sleep(0.005)
        return client

    def kill(self, point: Point, client: BaseProcess) -> None:
        """Kill the point's victim while the API is stopped, then let the API go on."""
        assert client.pid is not None
        engines = [pid for pid in _children(client.pid) if _name(pid) == "pulumi"]
        victims = {
            "client": [client.pid],
            "engine": engines or [client.pid],  # boto3 is at work, and no engine runs
            "provider": [self.provider],
            "all": [client.pid, *engines, self.provider],
        }[point.victim]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        for pid in victims:
            _until_ended(pid, LIMIT_S)
        os.kill(self._api, signal.SIGCONT)
        if self.provider in victims:
            # Its main thread is a zombie before its other threads have ended.
            os.waitid(os.P_PID, self.provider, os.WEXITED | os.WNOWAIT)
            self.renew_provider()
        if client.pid not in victims:
            client.join(LIMIT_S)  # it notices, and reports an error

    def lose_the_machine(self) -> None:
        """Remove the state, as if the machine had never existed."""
        shutil.rmtree(self._folder / "state")

    def leaks(self) -> list[str]:
        """Return what is left in the account and on the machine, in words."""
        for pid in self.processes():
            _until_ended(pid, ENDS_S)
        running = [f"process {pid} {_name(pid)}" for pid in self.processes()]
        return sorted(self.account() - self._before) + running + sorted(self._files())

    def processes(self) -> list[int]:
        """Return the processes that a client of this point has started."""
        mark = f"{MARK}={self._folder}".encode()
        return [pid for pid in _pids() if mark in _read(pid, "environ").split(b"\0")]

    def _files(self) -> Iterator[str]:
        for top in ("tmp", "state"):
            for path in (self._folder / top).rglob("*"):
                place = path.relative_to(self._folder / top)
                if not path.is_dir() and str(place) not in KEPT:
                    yield f"file {top}/{place}"
        for path in (self._folder / "state").rglob(NAME):
            yield f"folder {path.relative_to(self._folder)}"


@contextmanager
def scene(worlds: Worlds, folder: Path) -> Iterator[Scene]:
    """An empty region and machine; nothing that was started outlives the block."""
    with worlds.api(folder) as (url, pid):
        made = Scene(worlds, folder, url, pid)
        try:
            yield made
        finally:
            os.kill(pid, signal.SIGCONT)  # where the point failed at its moment
            made.close()


def leaks_of(point: Point, worlds: Worlds, folder: Path) -> list[str]:
    """Carry the point out; return what is left."""
    with scene(worlds, folder) as here:
        if point.command != "up":
            assert here.complete("up", point.shape) == 0, here.output("up")
        client = here.await_moment(point)
        here.kill(point, client)
        if point.remedy == "gc":
            here.lose_the_machine()
        code = here.complete(point.remedy, point.shape)
        said = here.output(point.remedy)
        problems = [] if code == 0 or f"there is no cluster '{NAME}'" in said else [said.strip()]
        return problems + here.leaks()


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:  # it has ended
        return b""


def _name(pid: int) -> str:
    return _read(pid, "comm").decode().strip()


def _children(parent: int) -> list[int]:
    stats = {pid: _read(pid, "stat").decode().rpartition(")")[2].split() for pid in _pids()}
    return [pid for pid, stat in stats.items() if stat and int(stat[1]) == parent]


def _until_ended(pid: int, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        stat = _read(pid, "stat").decode().rpartition(")")[2].split()
        if not stat or stat[0] == "Z":
            return
        time.sleep(0.01)
