"""A cluster of processes on this machine: real agents, without units and ssh."""

import asyncio
import atexit
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from config.run.run_file import Task
from engine.agent.head.run_state import RunState, journal_events
from engine.agent.head.supervisor import Supervisor
from engine.agent.head.supervisor_process import answers_of
from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.link.control import SOCKET
from engine.agent.link.control_server import serve
from engine.agent.link.event_stream import EventStream
from engine.agent.link.launcher import HELD
from engine.agent.link.times import TIMES, Times
from engine.agent.node import evidence, supervisor_link
from engine.contract.codec import from_json, to_json
from engine.contract.event import Event
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.contract.worker_events import Output
from engine.plan.launch_plan import launch_plan
from engine.plan.modes.job import node_range
from engine.record.events import parse_event
from engine.session.bundle import agent_bundle
from nodes.inventory import Bastion, Inventory, Node
from tests.engine.machines import two_machines
from tests.storm.supervise import NODE

TOOLS = Path(__file__).parent / "tools"


def make_inventory(count: int, gpus: int = 8) -> Inventory:
    return Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge" if gpus else "c5n.18xlarge",
        bastion=Bastion(instance_id="i-0", address="198.18.0.9"),
        nodes=tuple(
            Node(
                rank=rank,
                name=f"node{rank}",
                instance_id=f"i-{rank + 1}",
                private_ip=f"10.213.1.{rank + 10}",
                gpus=gpus,
                slots=gpus or 1,
            )
            for rank in range(count)
        ),
        folder=Path("/nonexistent"),
    )


def make_run(**fields: Any) -> Task:
    return Task.model_validate(
        {"type": "task", "name": "job", "nodes": 2, "commands": ("true",), **fields}
    )


def make_plan(**fields: Any) -> LaunchPlan:
    run = make_run(**fields)
    return launch_plan(run, make_inventory(node_range(run)[1]), "job-000001")


def when(path: str) -> str:
    """A command that ends when the file is there."""
    return f"until test -e {path}; do sleep 0.1; done"


class Reader(BytesIO):
    """What reads an EventStream and has its events at once, as a supervisor with its journal."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = EventStream(self)

    def write(self, data: Any) -> int:
        written = super().write(data)
        self.stream.forget(json.loads(bytes(data).splitlines()[-1])["sequence"])
        return written

    def events(self) -> list[dict[str, Any]]:
        """All events, once the stream is closed."""
        self.stream.close(lambda: True)
        *events, end = map(json.loads, self.getvalue().splitlines())
        assert end["kind"] == "ended"
        return events


@functools.cache
def unpacked_agent() -> Path:
    """The agent's folder for all tests of this process, as nodes have it.

    Python would compile the modules of an archive at every start.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpuctl-agent-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(BytesIO(agent_bundle().data)) as archive:
        archive.extractall(folder)
    return folder


class LocalLauncher:
    """Workers as plain processes, each with a folder of its own."""

    address = "127.0.0.1"

    def __init__(self, folder: Path, agent: Path) -> None:
        self._folder, self._agent = folder, agent
        self.processes: dict[int, Process] = {}
        self.powered_off = False
        self.back: set[int] = set()
        """Ranks that count as back once they were lost."""
        self.addresses: tuple[tuple[str, ...], ...] = ()
        self._homes = {f"10.213.1.{rank + 10}": rank for rank in range(16)}

    async def open(self, rank: int) -> Process:
        self.processes[rank] = await self._spawn("work", self.home(rank))
        return self.processes[rank]

    async def attach(self, rank: int) -> Process:
        return await self._spawn("attach", self.home(rank))

    def lose(self, rank: int) -> None:
        """End the node's worker as a reboot does: not by its job, and without a word."""
        (self.home(rank) / supervisor_link.SOCKET).unlink()
        self.processes[rank].kill()

    async def _spawn(self, command: str, folder: Path) -> Process:
        argv = [sys.executable, str(self._agent), command, str(folder)]
        environment = {**os.environ, NODE: str(folder)}
        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD, env=environment
        )

    saves: Callable[[int | None], Awaitable[Process]] | None = None
    """What saves in place of the agent's command."""

    async def save(self, rank: int | None) -> Process:
        return await (self.saves or self.start_saving)(rank)

    async def start_saving(self, rank: int | None) -> Process:
        folder = self._folder if rank is None else self.home(rank)
        return await self._spawn("save", folder)

    async def is_back(self, address: str) -> bool:
        return self._homes.get(address) in self.back

    def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
        self.addresses = (ips, cluster_ips)
        for rank, address in enumerate(ips):
            self._homes.setdefault(address, rank)

    def home(self, rank: int) -> Path:
        """The folder of the node that has this rank now."""
        number = self._homes[self.addresses[0][rank]] if self.addresses else rank
        return self._folder / f"node{number}"

    async def power_off(self) -> None:
        self.powered_off = True


class LocalCluster:
    """One run's supervisor in this process, its workers beside it."""

    def __init__(self, folder: Path, times: Times = TIMES) -> None:
        self.folder, self.times = folder, times
        agent = folder / "agent.pyz"
        if not agent.exists():
            agent.symlink_to(unpacked_agent())
        self.launcher = LocalLauncher(folder, agent)
        self.journal = Journal(folder / JOURNAL)

    def local_plan(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan with paths in the nodes' folders."""
        data = json.loads(json.dumps(to_json(plan)))
        for node in data["nodes"]:  # the plan's paths are the nodes' own
            node["files"] = {
                str(self.folder / f"node{node['rank']}" / Path(path).name): text
                for path, text in node["files"].items()
            }
            kept = str(self.folder / f"node{node['rank']}" / "checkpoints")
            node["environment"]["GPUCTL_CHECKPOINT_DIR"] = kept
            if "GPUCTL_WORKDIR" in node["environment"]:
                work = self.folder / f"node{node['rank']}" / "work"
                node["environment"]["GPUCTL_WORKDIR"] = str(work)
        for size in data["sizes"]:  # texts of all nodes: their folders differ only here
            size["common"]["files"] = {
                str(self.folder / Path(path).name): text
                for path, text in size["common"]["files"].items()
            }
            kept = str(self.folder / "checkpoints")
            size["common"]["environment"]["GPUCTL_CHECKPOINT_DIR"] = kept
        return from_json(LaunchPlan, data)

    def supervisor(
        self,
        plan: LaunchPlan,
        secrets: Mapping[str, str] = MappingProxyType({}),
        see: Callable[[Event], None] = lambda _: None,
    ) -> Supervisor:
        recorded = journal_events(self.folder / JOURNAL)  # by an earlier one, if any
        local, launcher = self.local_plan(plan), self.launcher
        return Supervisor(local, dict(secrets), self.journal, launcher, recorded, see, self.times)

    def execute(
        self, plan: LaunchPlan, secrets: Mapping[str, str] = MappingProxyType({})
    ) -> Verdict:
        """Runs the plan to its end."""
        supervisor = self.supervisor(plan, secrets)
        verdict = asyncio.run(supervisor.run())
        if not self.journal.dropped:
            assert_same_state(supervisor.state, self.resumed_state(plan))
        return verdict

    def resumed_state(self, plan: LaunchPlan) -> RunState:
        """Return the state that the next supervisor would have."""
        state = RunState(self.local_plan(plan))
        for event in journal_events(self.folder / JOURNAL):
            state.add(event)
        return state

    def execute_until(
        self,
        plan: LaunchPlan,
        text: str,
        seen: Path,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> Verdict:
        """Runs the plan to its end; makes the file `seen` once rank 0 has printed the text."""

        async def run() -> Verdict:
            running = asyncio.ensure_future(self.supervisor(plan, secrets).run())
            await self.printed(0, text)
            await asyncio.to_thread(seen.touch)
            return await running

        return asyncio.run(run())

    async def serve(self, supervisor: Supervisor) -> asyncio.AbstractServer:
        return await serve(self.folder, self.journal, answers_of(supervisor))

    async def printed(self, rank: int, text: str) -> None:
        """Returns when the rank has printed `text`."""
        for _ in range(400):
            if text in self.output(rank):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"rank {rank} did not print {text}")

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET

    def events(self) -> list[Event]:
        lines = (self.folder / JOURNAL).read_text().splitlines()
        events = [parse_event(line) for line in lines]
        assert None not in events
        return [event for event in events if event is not None]

    def kinds(self) -> list[tuple[str, int | None]]:
        """Kinds and ranks of all events but output."""
        return [(e.kind, getattr(e, "rank", None)) for e in self.events() if e.kind != "output"]

    def output(self, rank: int) -> str:
        """What the rank printed, both streams as they came."""
        return "".join(
            event.text + ("\n" if event.ends_line else "")
            for event in self.events()
            if isinstance(event, Output) and event.rank == rank
        )


def assert_same_state(state: RunState, other: RunState) -> None:
    """The next supervisor knows of a run what this one does, apart from what its disk lost."""
    assert {**vars(state), "write_error": ""} == {**vars(other), "write_error": ""}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")
    # The plan's addresses are nobody's here: what is asked about a lost node, this machine answers.
    collect = functools.partial(evidence.collect, "127.0.0.1")
    monkeypatch.setattr(evidence, "collect", lambda ip: collect())
    # A short path: a Unix socket's may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="gpuctl-"))
    cluster = LocalCluster(folder)
    yield cluster
    cluster.journal.close()
    end_jobs(folder)
    shutil.rmtree(folder)


def end_jobs(folder: Path) -> None:
    """End the jobs whose worker was killed, as its unit would have."""
    for pid, line in command_lines():
        if line.startswith(b"bash\0%b/" % os.fsencode(folder)):
            with suppress(ProcessLookupError):  # it has ended, or is not the job's first process
                os.killpg(pid, signal.SIGKILL)


def wait_for_agents(folder: Path) -> None:
    """Wait until no agent of the folder runs: one that was left alone clears it up as it ends."""
    deadline = time.monotonic() + 60
    while left := [line for _, line in command_lines() if str(folder).encode() in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def command_lines() -> Iterator[tuple[int, bytes]]:
    """The id and the command line of each process of this machine."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            yield int(process.name), (process / "cmdline").read_bytes()


@pytest.fixture(scope="package")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    """Two machines of the lab, for all tests that need them."""
    with two_machines(tmp_path_factory.mktemp("cluster")) as there:
        yield there
