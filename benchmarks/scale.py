"""What a run of many nodes costs its head: time, memory and processor, in all and for each node.

    .venv/bin/python -m benchmarks.scale [--nodes 128,512,2048] [--journal 100] [--json]

The supervisor is the agent's own, in a process of its own, with its journal on a disk and its
process for heartbeats. The nodes are simulated by one process (benchmarks/scale_nodes.py) that
shares the machine's processors with it, which nodes do not. One run goes through all of it:

`start`: from the start of the supervisor's process to the first line of the slowest node; `ready`:
until it listens. `start_cpu`: its processor time for that, and `share` its share of a processor
while every node prints a line and sends a heartbeat a second. `size`: its largest resident memory
until then, its process for heartbeats included.
`answered`: half of the nodes are silent for 10 s; from then on until each answers again.
`client`: a client that attaches when the journal has so many MiB of output, until it has printed
all, and its size. `replay`: the supervisor is killed; until the next one has read the journal;
`resumed` has every node again.
`lost`: one in a hundred machines is gone, until their loss is in the journal; `ended`: until no
node has a process of the attempt any more, and the evidence is collected; `restart`: until the
first line of the slowest node of the next attempt. `silent`: a network passes nothing any more,
until the loss of its node is in the journal. `end`: from the end of the job to that of the run.

`… a node`: what each node adds to a run of one node: the figures of a supervisor do not grow faster
than its nodes if these do not grow.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.endless_line import peak_of
from benchmarks.floods import plan_of
from benchmarks.scale_nodes import LINE, SimulatedNodes
from benchmarks.scale_supervisor import NODES, PLAN
from engine.agent.journal.journal_file import JOURNAL, JournalReader
from engine.agent.link.heartbeat_process import BEAT_S
from engine.contract.codec import from_json, to_json
from engine.contract.plan import LaunchPlan, RetryPlan, RunOrder
from engine.session.bundle import agent_bundle

FIRST_LINE = "the first line"
STEADY_S = 10.0
SILENCE_S = 10.0
WAIT_S = 180.0
_CAUGHT_UP = "caught-up.json"
_A_NODE = (
    ("start", "ms", 1e3),
    ("start_cpu", "ms", 1e3),
    ("share", "ms/s", 1e3),
    ("size", "KiB", 1024),
)


@dataclass(frozen=True)
class Start:
    """The figures of a run's start, as described above: seconds, MiB."""

    nodes: int
    ready: float
    start: float
    start_cpu: float
    share: float
    size: float


@dataclass(frozen=True)
class Figures(Start):
    """The figures of one run, as described above: seconds, MiB, events a second."""

    answered: float
    filled_mib: float
    fill_events: float
    size_filled: float
    client: float
    client_size: float
    replay: float
    resumed: float
    lost: float
    ended: float
    restart: float
    silent: float
    end: float


class Watch:
    """A reader of the run's journal as it grows; it waits for events."""

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
                event = json.loads(line)
                if is_it(event):
                    return float(event["time"])
            time.sleep(0.01)
        raise TimeoutError(f"no {what} within {WAIT_S:g} s")

    def kind(self, kind: str, nodes: int = 1) -> float:
        """Return the time of the next event of the kind, or of the last one of so many nodes."""
        seen: set[int | None] = set()

        def is_last(event: dict[str, Any]) -> bool:
            if event["kind"] == kind:
                seen.add(event.get("rank"))
            return len(seen) == nodes

        return self.wait(is_last, f"{kind} of {nodes} nodes")

    def lines(self, nodes: int, text: str, since: float = 0.0) -> float:
        """Return the time at which the last of so many nodes has printed the line, since then."""
        seen: set[int] = set()

        def is_last(event: dict[str, Any]) -> bool:
            is_line = event["kind"] == "output" and event["text"] == text
            if is_line and event["time"] >= since:
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


class SimulatedRun:
    """A run with simulated nodes. `say` tells them what happens, `watch` reads the journal."""

    def __init__(self, folder: Path, plan: LaunchPlan, say: Connection) -> None:
        self.folder, self.nodes, self._say = folder / plan.run_id, len(plan.nodes), say
        order = RunOrder(plan, {})
        (folder / PLAN).write_text(json.dumps(to_json(order.without_common_texts())))
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind(str(folder / "notify.sock"))
        self._supervisors: list[subprocess.Popen[bytes]] = []
        self.watch = Watch(self.folder / JOURNAL)

    def say(self, what: str, *ranks: int) -> None:
        """Let something happen to these nodes, or to all: see SimulatedNodes."""
        self._say.send((what, ranks))

    def supervise(self) -> subprocess.Popen[bytes]:
        """Start a supervisor in a session of its own, and return it when it listens."""
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scale_supervisor", str(self.folder)],
            env={**os.environ, "NOTIFY_SOCKET": self._notified.getsockname()},
            start_new_session=True,
        )
        self._supervisors.append(process)
        self._notified.settimeout(WAIT_S)
        assert self._notified.recv(64) == b"READY=1"
        return process

    def close(self) -> None:
        """Kill a supervisor that runs; close the journal and the socket."""
        for supervisor in self._supervisors:
            supervisor.kill()
            supervisor.wait()
        self.watch.close()
        self._notified.close()


@contextlib.contextmanager
def simulated_run(plan: LaunchPlan) -> Iterator[SimulatedRun]:
    """Yield a run whose nodes are simulated, each with a socket, in one process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name:
        folder = Path(name)

        def play() -> None:
            SimulatedNodes(folder / NODES, len(plan.nodes), theirs).run()

        process = context.Process(target=play, daemon=True)
        process.start()
        run = SimulatedRun(folder, plan, ours)
        try:
            while not (folder / NODES).exists():
                time.sleep(0.01)
            yield run
        finally:
            run.close()
            process.kill()
            process.join()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def members_of(session: int) -> list[int]:
    """Return the processes of the session."""
    members = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if os.getsid(int(path.name)) == session:
                members.append(int(path.name))
    return members


def long_plan(nodes: int) -> LaunchPlan:
    """Return the plan of a run that goes on when nodes are lost."""
    retry = RetryPlan(attempts=9, on=("node-lost",), backoff_s=0, node_wait_s=600)
    return replace(plan_of(nodes), stop_criteria="master-done", retry=retry)


def measure(nodes: int, journal_mib: float) -> Figures:
    """Return the figures of one run of so many nodes."""
    with simulated_run(long_plan(nodes)) as run:
        began = time.time()
        first = run.supervise()
        start = _measure_start(run, first.pid, began)
        watch = run.watch

        half = tuple(range(nodes // 2, nodes))
        run.say("silence", *half)
        time.sleep(SILENCE_S)
        run.say("speak", *half)
        spoken = time.time()
        answered = watch.kind("node_answers_again", len(half)) - spoken

        watch.read()
        events, before, filling = watch.events, watch.size, time.monotonic()
        run.say("fill")
        while watch.size - before < journal_mib * 2**20:
            watch.read()
            time.sleep(0.02)
        run.say("calm")
        fill_events = (watch.events - events) / (time.monotonic() - filling)
        watch.lines(nodes, LINE, time.time())  # what waited in the pipes is read
        (run.folder / "agent.pyz").write_bytes(agent_bundle().data)  # the head's, for the client
        client, client_size = attach(run.folder)
        watch.read()
        size_filled = _peak(first.pid)

        first.send_signal(signal.SIGKILL)
        first.wait()
        killed = time.time()
        second = run.supervise()
        replay = time.time() - killed
        watch.kind("supervisor_resumed")
        watch.lines(nodes, LINE, killed)
        resumed = time.time() - killed

        lost, ended, restart = _lose(run, "die", range(nodes - max(1, nodes // 100), nodes))
        time.sleep(3 * BEAT_S)  # a node is watched from its first heartbeat on
        silent, *_ = _lose(run, "silence", range(nodes - 1, nodes))
        run.say("exit", 0)
        over = time.time()
        end = watch.kind("run_finished") - over
        assert second.wait() == 0
        return Figures(
            **asdict(start),
            answered=answered,
            filled_mib=(watch.size - before) / 2**20,
            fill_events=fill_events,
            size_filled=size_filled,
            client=client,
            client_size=client_size,
            replay=replay,
            resumed=resumed,
            lost=lost,
            ended=ended,
            restart=restart,
            silent=silent,
            end=end,
        )


def measure_start(nodes: int) -> Start:
    """Return the figures of the start of a run of so many nodes, and end it."""
    with simulated_run(long_plan(nodes)) as run:
        began = time.time()
        supervisor = run.supervise()
        start = _measure_start(run, supervisor.pid, began)
        run.say("exit", 0)
        assert supervisor.wait() == 0
        return start


def _measure_start(run: SimulatedRun, pid: int, began: float) -> Start:
    ready = time.time() - began
    start = run.watch.lines(run.nodes, FIRST_LINE) - began
    cpu = _cpu(pid)
    time.sleep(STEADY_S)
    share = (_cpu(pid) - cpu) / STEADY_S
    return Start(run.nodes, ready, start, cpu, share, _peak(pid))


def _lose(run: SimulatedRun, how: str, ranks: range) -> tuple[float, float, float]:
    """Lose nodes; return the seconds until that is known, the attempt's end, the next."""
    run.watch.read()
    hit = time.time()
    run.say(how, *ranks)
    lost = run.watch.kind("node_lost", len(ranks)) - hit
    ended = run.watch.kind("attempt_ended") - hit
    restart = run.watch.lines(run.nodes, FIRST_LINE, hit) - hit
    return lost, ended, restart


def _peak(session: int) -> float:
    """Return the largest resident memory so far of the session's processes, in MiB."""
    return sum(peak_of(pid) for pid in members_of(session))


def _cpu(session: int) -> float:
    """Return the processor time of the session's processes, in seconds."""
    ticks = 0
    for pid in members_of(session):
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, values[11:15]))  # with those of its children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


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
    from benchmarks.lines import use_local_head
    from cli.output import Output
    from cli.render.run import RunView
    from engine.contract.event import Event
    from engine.record.history import History
    from engine.session import session
    from tests.engine.conftest import make_inventory

    use_local_head(folder)
    plan = from_json(RunOrder, json.loads((folder.parent / PLAN).read_text())).plan
    began, runs, view = time.time(), folder / "client", RunView(plan, Output())
    with History(runs) as history:
        history.begin(plan)

    def see(event: Event) -> None:
        view.event(event)
        if event.time > began and not (folder / _CAUGHT_UP).exists():
            part = folder / f"{_CAUGHT_UP}.part"
            part.write_text(str(time.time() - began))
            part.rename(folder / _CAUGHT_UP)  # whole: this process is killed once it is there

    inventory = make_inventory(1).model_copy(update={"cluster": plan.cluster})
    asyncio.run(session.follow(plan.run_id, inventory, runs, see))


def main() -> None:
    """Print a table on stdout, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="128,512,2048", help="numbers, such as 8,512")
    parser.add_argument("--journal", type=float, default=100, metavar="MIB", help="of output")
    parser.add_argument("--start", action="store_true", help="measure the start alone")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.follow:
        follow(arguments.follow)
        return
    base, runs = min((measure_start(1) for _ in range(3)), key=lambda run: run.start), []
    for nodes in map(int, arguments.nodes.split(",")):
        runs.append(measure_start(nodes) if arguments.start else measure(nodes, arguments.journal))
    if arguments.json:
        print(json.dumps([asdict(run) for run in (base, *runs)], indent=2))
        return
    for field in fields(runs[0]):
        values = [getattr(run, field.name) for run in runs]
        print(f"{field.name:24}" + "".join(f"{value:12,.2f}" for value in values))
    for name, unit, factor in _A_NODE:
        added = [(getattr(run, name) - getattr(base, name)) / run.nodes * factor for run in runs]
        print(f"{name + ' a node, ' + unit:24}" + "".join(f"{value:12,.2f}" for value in added))


if __name__ == "__main__":
    main()
