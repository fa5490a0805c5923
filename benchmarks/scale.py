"""What a run of many nodes costs its head: launch, memory, loss of a node, restart, taking up.

    .venv/bin/python -m benchmarks.scale --nodes 8,512 --journal 100 [--json]

The supervisor is a process of its own with the agent's code, its journal on a disk and its
heartbeats. The nodes are simulated by one process (benchmarks/scale_nodes.py) that shares the
machine's processors with it, which nodes do not. One run goes through all of it:

`launch`: from the run's begin to the first line of the slowest node. `size`: the supervisor's
resident memory then; `a node`: what each node adds to that of a run of 2. `cpu`: its share of a
processor while every node prints a line and sends a heartbeat a second. `client`: a client that
attaches when the journal has so many MiB of output, until it has printed all, and its size.
`replay`: the supervisor is killed; the next one reads the journal, `resumed` has every node again.
`lost`: a machine is gone, until its loss is in the journal; `ended`: until no node has a process of
the attempt any more, and the evidence is collected; `restart`: until the first line of the slowest
node of the next attempt. `silent`: as `lost`, with a network that passes nothing any more.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.endless_line import peak_of
from benchmarks.floods import plan_of
from benchmarks.scale_nodes import BATCH, SimulatedNodes
from benchmarks.scale_supervisor import NODES, READY
from engine.agent.journal.journal_file import JOURNAL, JournalReader
from engine.agent.link.heartbeat import BEAT_S
from engine.contract.codec import from_json, to_json
from engine.contract.plan import RetryPlan
from engine.session.bundle import agent_bundle

FIRST_LINE = '"the first line"'
STEADY_S = 10.0
WAIT_S = 180.0
_CAUGHT_UP = "caught-up.json"


@dataclass(frozen=True)
class Figures:
    """The figures of one run, as described above: seconds, MiB, events a second."""

    nodes: int
    launch: float
    size: float
    cpu: float
    filled_mib: float
    fill_events: float
    size_filled: float
    client: float
    client_size: float
    replay: float
    replay_events: float
    resumed: float
    lost: float
    ended: float
    restart: float
    silent: float


class Watch:
    """A reader of the run's journal as it grows; `at` is the time of the last event waited for."""

    def __init__(self, path: Path) -> None:
        self._reader = JournalReader(path)
        self.events = 0
        self.size = 0

    def wait(self, is_it: Callable[[dict[str, Any]], bool], what: str) -> float:
        """Return the time of the next event for which `is_it` is true."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for line in self._reader.read():
                self.events += 1
                self.size += len(line)
                if len(line) > len(BATCH):  # nothing else is as long as a batch of output
                    continue
                event = json.loads(line)
                if is_it(event):
                    return float(event["time"])
            time.sleep(0.01)
        raise TimeoutError(f"no {what} within {WAIT_S:g} s")

    def kind(self, kind: str) -> float:
        """Return the time of the next event of the kind."""
        return self.wait(lambda event: event["kind"] == kind, kind)

    def lines(self, nodes: int, text: str) -> float:
        """Return the time at which the last of so many nodes has printed such a line."""
        seen: set[int] = set()

        def is_last(event: dict[str, Any]) -> bool:
            if event["kind"] == "output" and text in json.dumps(event["text"]):
                seen.add(event["rank"])
            return len(seen) == nodes

        return self.wait(is_last, f"line of {nodes} nodes")

    def close(self) -> None:
        """Close the journal."""
        self._reader.close()

    def read(self) -> None:
        """Read what there is."""
        for line in self._reader.read():
            self.events += 1
            self.size += len(line)


def measure(nodes: int, journal_mib: float) -> Figures:
    """Return the figures of one run of so many nodes."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name, simulated(Path(name), nodes) as to:
        return _measure(Path(name), nodes, journal_mib, to)


def _measure(folder: Path, nodes: int, journal_mib: float, to: Connection) -> Figures:
    retry = RetryPlan(attempts=9, on=("node-lost",), backoff_s=0, node_wait_s=600)
    plan = replace(plan_of(nodes), stop_criteria="master-done", retry=retry)
    (folder / "plan.json").write_text(json.dumps(to_json(plan)))
    (folder / "agent.pyz").write_bytes(agent_bundle().data)  # the head's, for the client
    watch = Watch(folder / JOURNAL)
    first = _start(folder)
    began = watch.kind("run_started")
    launch = watch.lines(nodes, FIRST_LINE) - began
    used = _cpu_of(first.pid)
    time.sleep(STEADY_S)
    cpu = (_cpu_of(first.pid) - used) / STEADY_S
    size = _size_of(first.pid)

    watch.read()
    events, before, filling = watch.events, watch.size, time.monotonic()
    to.send(("fill",))
    while watch.size - before < journal_mib * 2**20:
        watch.read()
        time.sleep(0.02)
    to.send(("calm",))
    fill_events = (watch.events - events) / (time.monotonic() - filling)
    watch.lines(nodes, "step")  # what waited in the pipes is read
    client, client_size = attach(folder)
    watch.read()
    size_filled, recorded = _size_of(first.pid), watch.events

    first.send_signal(signal.SIGKILL)
    first.wait()
    (folder / READY).unlink()
    killed = time.time()
    second = _start(folder)
    watch.kind("supervisor_resumed")
    resumed = watch.lines(nodes, "step") - killed
    replay = float((folder / READY).read_text())

    lost, ended, restart = _lose(watch, to, "die", nodes)
    time.sleep(3 * BEAT_S)  # a node is watched from its first heartbeat on
    silent, *_ = _lose(watch, to, "silence", nodes)
    to.send(("exit", 0))
    watch.kind("run_finished")
    assert second.wait() == 0
    filled = (watch.size - before) / 2**20
    return Figures(
        nodes,
        launch,
        size,
        cpu,
        filled,
        fill_events,
        size_filled,
        client,
        client_size,
        replay,
        recorded / replay,
        resumed,
        lost,
        ended,
        restart,
        silent,
    )


def _lose(watch: Watch, to: Connection, how: str, nodes: int) -> tuple[float, float, float]:
    """Lose the last node; return the seconds until that is known, the attempt's end, the next."""
    watch.read()
    hit = time.time()
    to.send((how, nodes - 1))
    lost = watch.kind("node_lost") - hit
    ended = watch.kind("attempt_ended") - hit
    restart = watch.lines(nodes, FIRST_LINE) - hit
    return lost, ended, restart


@contextlib.contextmanager
def simulated(folder: Path, nodes: int) -> Iterator[Connection]:
    """Yield the connection that brings orders to the simulated nodes."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def play() -> None:
        SimulatedNodes(folder / NODES, nodes, theirs).run()

    process = context.Process(target=play, daemon=True)
    process.start()
    while not (folder / NODES).exists():
        time.sleep(0.01)
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a supervisor; return it once it listens."""
    argv = [sys.executable, "-m", "benchmarks.scale_supervisor", str(folder)]
    process = subprocess.Popen(argv)
    while not (folder / READY).exists():
        assert process.poll() is None, "the supervisor has ended"
        time.sleep(0.01)
    return process


def _size_of(pid: int) -> float:
    """Return the resident memory of the process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _cpu_of(pid: int) -> float:
    """Return the processor time that the process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def attach(folder: Path) -> tuple[float, float]:
    """Attach a client; return the seconds until it has printed all that was, and its MiB."""
    argv = [sys.executable, "-m", "benchmarks.scale", "--follow", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as client:
        try:
            while not (folder / _CAUGHT_UP).exists():
                assert client.poll() is None, "the client has ended"
                time.sleep(0.02)
            peak = peak_of(client.pid)
        finally:
            client.kill()
    time.sleep(1)  # its follower on the head sees that
    return float((folder / _CAUGHT_UP).read_text()), peak


def follow(folder: Path) -> None:
    """Follow the run and print it, as `gpuctl attach` does; the client's process."""
    from benchmarks.lines import Local
    from cli.output import Output
    from cli.run_view import RunView
    from engine.contract.events import Event
    from engine.contract.plan import LaunchPlan
    from engine.record.history import History
    from engine.session import head, session
    from tests.engine.conftest import make_inventory

    @contextlib.asynccontextmanager
    async def connect(_: object) -> AsyncIterator[Local]:
        yield Local()

    patched: Any = head
    patched.connect = connect
    patched.run_folder = lambda _: str(folder)
    plan = from_json(LaunchPlan, json.loads((folder / "plan.json").read_text()))
    began, runs, view = time.time(), folder / "client", RunView(plan, Output())
    with History(runs) as history:
        history.begin(plan)

    def see(event: Event) -> None:
        view.event(event)
        if event.time > began and not (folder / _CAUGHT_UP).exists():
            part = folder / f"{_CAUGHT_UP}.part"
            part.write_text(str(time.time() - began))
            part.rename(folder / _CAUGHT_UP)  # whole: this process is killed once it is there

    asyncio.run(session.follow(plan.run_id, make_inventory(1), runs, see))


def main() -> None:
    """Print a table on stdout, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="8,512", help="numbers, such as 8,512")
    parser.add_argument("--journal", type=float, default=100, metavar="MIB", help="of output")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.follow:
        follow(arguments.follow)
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = [measure(int(nodes), arguments.journal) for nodes in arguments.nodes.split(",")]
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return
    for name in asdict(found[0]):
        print(f"{name:14}" + "".join(f"{getattr(one, name):12,.2f}" for one in found))


if __name__ == "__main__":
    main()
