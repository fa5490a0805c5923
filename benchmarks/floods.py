"""How long a supervisor's event loop stands still while every node of its run floods it.

    .venv/bin/python -m benchmarks.floods --nodes 16,64,256,512,2048

The supervisor is the real one, with its journal on a disk and its heartbeats. The nodes are
simulated by two processes: one writes short lines of output to a socket for each node, as fast as
they are taken, the other sends each node's heartbeats. Both share the machine's processors with
the supervisor, which nodes do not.

`beat` is the longest time between two turns of the event loop (a heartbeat is answered by another
process, as long as a turn takes less than hung_s), `answer` the longest time that a node waited for
an answer to its heartbeats (its worker ends the job after head_silence_s), `stop` the time from a
request to stop until the run's end is written.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import resource
import selectors
import socket
import tempfile
import time
from asyncio.subprocess import Process
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from benchmarks.worker_sockets import Pipes
from config.run.run_file import Task
from engine.agent.head.supervisor import Supervisor
from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL, JournalReader, kind_of
from engine.agent.link.heartbeat_process import BEAT_S, raise_priority, seal, unseal
from engine.agent.link.launcher import HELD
from engine.contract.event import Event, to_line
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import NodeExited, NodePrepared, NodeReady, NodeStarted, Output
from engine.plan.launch_plan import launch_plan
from nodes.inventory import Bastion, Inventory, Node

LINE = "node17: NCCL INFO Channel 05/0 : 17[1] -> 18[2] via P2P/CUMEM/read, step 48213"
LINES = 400  # of one write
TICK_S = 0.05


@dataclass(frozen=True)
class Seen:
    """The result of one run of floods: seconds, events and bytes of the journal, nodes lost."""

    beat: float
    beat_cpu: float
    answer: float
    stop: float
    events: int
    size: int
    lost: int


class Sockets:
    """Launches the simulated workers: each is a socket that the flooding process holds too."""

    address = "127.0.0.1"

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets

    async def open(self, rank: int) -> Process:
        reader, writer = await asyncio.open_connection(sock=self._sockets[rank], limit=HELD)
        return cast(Process, Pipes(reader, writer))

    async def attach(self, rank: int) -> Process:
        raise OSError("nothing to attach to")

    async def is_back(self, address: str) -> bool:
        raise AssertionError("the plan has no retry")

    def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
        raise AssertionError("the plan has no retry")

    async def save(self, rank: int | None) -> Process:
        raise AssertionError("the plan says keep")

    async def power_off(self) -> None:
        raise AssertionError("the plan says keep")


class Floods:
    """The flooding process: it takes each node's orders, and prints until it has to stop."""

    def __init__(self, sockets: list[socket.socket], beats: Connection) -> None:
        self._beats = beats
        self._selector = selectors.DefaultSelector()
        self._said = [b""] * len(sockets)  # by the supervisor, since its last whole line
        self._heard_order = [False] * len(sockets)
        self._pending = [b""] * len(sockets)
        self._floods = [False] * len(sockets)
        self._ended: set[int] = set()
        for rank, node in enumerate(sockets):
            node.setblocking(False)
            self._selector.register(node, selectors.EVENT_READ, rank)
        self._chunk = _line(Output(0, "stdout", LINE)) * LINES

    def run(self) -> None:
        """Return when the supervisor has closed every node's socket."""
        while self._selector.get_map():
            for key, ready in self._selector.select():
                node = cast(socket.socket, key.fileobj)
                if ready & selectors.EVENT_READ and not self._read(node, key.data):
                    continue
                if ready & selectors.EVENT_WRITE:
                    self._write(node, key.data)

    def _read(self, node: socket.socket, rank: int) -> bool:
        try:
            data = node.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._close(node)
            return False
        *lines, self._said[rank] = (self._said[rank] + data).split(b"\n")
        for line in lines:
            self._obey(rank, line)
        interest = selectors.EVENT_READ
        if self._pending[rank] or self._floods[rank]:
            interest |= selectors.EVENT_WRITE
        self._selector.modify(node, interest, rank)
        return True

    def _obey(self, rank: int, line: bytes) -> None:
        if not self._heard_order[rank]:
            self._heard_order[rank] = True
            if rank == 0:  # all have the same
                self._beats.send(json.loads(line)["heartbeats"])
            self._pending[rank] += _line(NodePrepared(rank))
        elif json.loads(line)["do"] == "start":
            self._pending[rank] += _line(NodeStarted(rank, 1)) + _line(NodeReady(rank))
            self._floods[rank] = True
        else:
            self._floods[rank] = False
            self._pending[rank] += _line(NodeExited(rank, 143, signal=15))
            self._ended.add(rank)

    def _write(self, node: socket.socket, rank: int) -> None:
        data = self._pending[rank] or (self._chunk if self._floods[rank] else b"")
        try:
            self._pending[rank] = data[node.send(data) :]
        except BlockingIOError:
            return
        if not self._pending[rank] and rank in self._ended:
            self._close(node)
        elif not self._pending[rank] and not self._floods[rank]:
            self._selector.modify(node, selectors.EVENT_READ, rank)

    def _close(self, node: socket.socket) -> None:
        self._selector.unregister(node)
        node.close()


def _line(event: Event) -> bytes:
    return to_line(event, time=1763800000.123).encode() + b"\n"


def beat(nodes: int, supervisor: Connection, flood: Connection) -> None:
    """Send every node's heartbeats for ever; when asked, say how long one had no answer."""
    raise_priority()
    to: dict[str, Any] = flood.recv()
    key, where = bytes.fromhex(to["key"]), (to["address"], to["port"])
    beats = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    beats.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    beats.settimeout(0)
    heard = [time.monotonic()] * nodes
    longest, number = 0.0, 0
    while True:
        if supervisor.poll():
            supervisor.recv()
            supervisor.send(max(longest, *(time.monotonic() - at for at in heard)))
        number += 1
        begun = time.monotonic()
        for rank in range(nodes):  # spread over the second, as those of many machines are
            beats.sendto(seal(key, b"q", rank, number), where)
            longest = max(longest, _take(beats, key, heard))
            left = begun + BEAT_S * rank / nodes - time.monotonic()
            if left > 0:
                time.sleep(left)


def _take(beats: socket.socket, key: bytes, heard: list[float]) -> float:
    """Note all answers that are there; return the longest silence that one of them ended."""
    longest = 0.0
    while True:
        try:
            answer = unseal(key, b"a", beats.recv(64))
        except BlockingIOError:
            return longest
        if answer:
            longest = max(longest, time.monotonic() - heard[answer[0]])
            heard[answer[0]] = time.monotonic()


def plan_of(nodes: int) -> LaunchPlan:
    """A plan for so many nodes: more than a run file may ask for."""
    there = Inventory(
        cluster="floods",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="c5n.18xlarge",
        bastion=Bastion(instance_id="i-0", address="198.18.0.9"),
        nodes=tuple(
            Node(
                rank=rank,
                name=f"node{rank}",
                instance_id=f"i-{rank + 1}",
                private_ip=f"10.213.{rank // 250}.{rank % 250 + 1}",
                gpus=0,
                slots=1,
            )
            for rank in range(nodes)
        ),
        folder=Path("/nonexistent"),
    )
    run = Task.model_construct(type="task", name="floods", nodes=nodes, commands=("yes",))
    return launch_plan(run, there, "floods-000001")


async def flooded(nodes: int, seconds: float, launcher: Sockets, beats: Connection) -> Seen:
    """Let all nodes flood a supervisor for so long, then stop the run."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        journal = Journal(Path(folder) / JOURNAL)
        supervisor = Supervisor(plan_of(nodes), {}, journal, launcher)
        running = asyncio.ensure_future(supervisor.run())
        while supervisor.state.attempt.nodes.count("ready") < nodes:
            await asyncio.sleep(TICK_S)
            assert not running.done(), running.result()
        longest, own, last, used = 0.0, 0.0, time.monotonic(), time.process_time()
        end = last + seconds
        while last < end:
            await asyncio.sleep(TICK_S)
            now, cpu = time.monotonic(), time.process_time()
            longest, own = max(longest, now - last), max(own, cpu - used)
            last, used = now, cpu
        beats.send("how long?")
        supervisor.stop()
        verdict = await running
        stop = time.monotonic() - last
        assert verdict.reason == "stopped on request", verdict
        journal.close()
        events, lost, size = 0, 0, 0
        with contextlib.closing(JournalReader(Path(folder) / JOURNAL)) as reader:
            for line in reader.read():
                events += 1
                size += len(line)
                lost += kind_of(line, "node_lost") != ""
        return Seen(longest - TICK_S, own, beats.recv(), stop, events, size, lost)


def measure(nodes: int, seconds: float) -> Seen:
    """One run of so many nodes."""
    context = multiprocessing.get_context("fork")
    pairs = [socket.socketpair() for _ in range(nodes)]
    here, there = context.Pipe()
    order, told = context.Pipe()

    def flood() -> None:
        for ours, _ in pairs:
            ours.close()
        Floods([theirs for _, theirs in pairs], told).run()

    def send_beats() -> None:
        for pair in pairs:
            for end in pair:
                end.close()
        beat(nodes, there, order)

    processes = [context.Process(target=run, daemon=True) for run in (flood, send_beats)]
    for process in processes:
        process.start()
    for _, theirs in pairs:
        theirs.close()
    try:
        return asyncio.run(flooded(nodes, seconds, Sockets([ours for ours, _ in pairs]), here))
    finally:
        for process in processes:
            process.kill()
            process.join()


def main() -> None:
    """A table on stdout, a line for each number of nodes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="512,2048", help="numbers, such as 16,512")
    parser.add_argument("--seconds", type=float, default=20, help="how long they flood")
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("nodes   beat s   its CPU  answer s  stop s  events/s   MiB/s  lost")
    for nodes in map(int, arguments.nodes.split(",")):
        seen = measure(nodes, arguments.seconds)
        took = arguments.seconds + seen.stop
        print(
            f"{nodes:5} {seen.beat:8.2f} {seen.beat_cpu:9.2f} {seen.answer:9.2f} {seen.stop:7.2f}"
            f" {seen.events / took:9.0f} {seen.size / took / 2**20:7.1f} {seen.lost:5}",
            flush=True,
        )


if __name__ == "__main__":
    main()
