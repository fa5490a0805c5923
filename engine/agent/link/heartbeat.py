"""Heartbeats between the supervisor and its workers: signed datagrams, one process on each side.

A worker's process sends one per second and the supervisor's process answers it, so each side knows
whether it can reach the other. They are separate processes (docs/decisions/180), so that they never
wait for output, nor for Python's lock, which a thread without CPU time may hold. They do not wait
for their owners either: reports that an owner does not read yet are kept (_Reports).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.agent.journal.clock import StepWatch, time_of_day
from engine.agent.link.process_title import rename_process
from engine.agent.link.silence import SilenceWatch
from engine.contract.codec import from_json, to_json
from engine.contract.node_plan import HeartbeatAddress

BEAT_S = 1.0
SILENCE_S = 15.0  # a node without heartbeats for this time is lost
HEAD_SILENCE_S = 20.0  # above SILENCE_S: the supervisor gives a node up before the node its job
ANSWER_S = 30.0  # for the first answer, before the job starts
NOTABLE_S = 5.0  # a silence of this time or more is reported when it ends
HUNG_S = 120.0  # without a sign of life for this time, the supervisor's process stops answering

_HEADER = struct.Struct(">cIQ")  # question or answer, rank, number of the beat
_QUESTION, _ANSWER = b"q", b"a"
_SILENT = b"silent "  # a worker's process reports this, and how often it has turned to another head
_STEP = b"clock "  # a worker's process reports this, and by how many seconds the clock was set
_SEAL = 16  # bytes of HMAC-SHA256
_NUMBER = struct.Struct("=Q")  # of a worker's last beat
_LIFE = struct.Struct("=d")  # the supervisor's last sign of life, on the monotonic clock
_HEARD = struct.Struct("=dQ4sH")  # time of day, number of the beat, address and port of its sender
_LOWEST = -20  # nice's most favourable value
_INTERACTIVE = 6  # TC_PRIO_INTERACTIVE (linux/pkt_sched.h): sent before the job's bulk data
_REPORT_BYTES = 1024  # more than a report or an order has
# For a beat of 2,048 nodes at once: the kernel counts 768 bytes for a datagram, and its default of
# 208 KiB (net.core.rmem_default) holds 277.
_UNREAD_BYTES = 2 << 20
_SO_RCVBUFFORCE = 33  # socket(7): beyond rmem_max, with CAP_NET_ADMIN
_SO_PRIORITY = 12  # socket(7); PyPy does not name it
# The folder or archive with the package `engine`, and the descriptors for `_run`.
_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[1])
from engine.agent.link.heartbeat import run_process
run_process(*map(int, sys.argv[2:]))
"""
_ROOT = str(Path(__file__).parents[3])


def seal(key: bytes, kind: bytes, rank: int, number: int) -> bytes:
    """Return the datagram of a heartbeat, signed with `key`."""
    header = _HEADER.pack(kind, rank, number)
    return header + hmac.digest(key, header, "sha256")[:_SEAL]


def unseal(key: bytes, kind: bytes, data: bytes) -> tuple[int, int] | None:
    """Return rank and number of a heartbeat; None if it is not of this run or not of `kind`."""
    header, signature = data[: _HEADER.size], data[_HEADER.size :]
    expected = hmac.digest(key, header, "sha256")[:_SEAL]
    if len(header) != _HEADER.size or not hmac.compare_digest(signature, expected):
        return None
    of, rank, number = _HEADER.unpack(header)
    return (rank, number) if of == kind else None


class HeartbeatServer:
    """The supervisor's side for `ranks` nodes; it watches each from its first heartbeat on."""

    def __init__(self, key: bytes, ranks: int) -> None:
        # The process writes an entry per rank; after them is the supervisor's sign of life.
        self._life = ranks * _HEARD.size
        self._memory = _Memory(self._life + _LIFE.size)
        self._heard = self._memory.map()
        self.signal_alive()
        self._key = key
        self._order = {
            "do": "answer",
            "key": key.hex(),
            "ranks": ranks,
            "silence_s": SILENCE_S,
            "notable_s": NOTABLE_S,
            "hung_s": HUNG_S,
        }
        self._beats = _socket()  # kept over restarts: workers know its port
        self._beats.bind(("", 0))
        self.port: int = self._beats.getsockname()[1]
        self._process = self._start()

    def _start(self) -> _Process:
        return _Process(self._order, self._memory.descriptor, self._beats.fileno())

    def address_at(self, host: str) -> HeartbeatAddress:
        """Return the argument `to` of a HeartbeatClient that reaches this machine at `host`."""
        return HeartbeatAddress(
            address=host,
            port=self.port,
            key=self._key.hex(),
            answer_s=ANSWER_S,
            silence_s=HEAD_SILENCE_S,
        )

    def signal_alive(self) -> None:
        """Show that the supervisor works: the process then answers for another HUNG_S."""
        _LIFE.pack_into(self._heard, self._life, time.monotonic())

    @property
    def pid(self) -> int:
        """The id of the process that answers."""
        return self._process.pid

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is a report."""
        return self._process.reports.fileno()

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yield all reports that wait; the last one is {} when the process has ended.

        A report has `rank`, and `silence_s` for a silence that ended or `last_heard` (time of day)
        for a node that has been silent for too long.
        """
        while True:
            try:
                data = self._process.reports.recv(_REPORT_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # it was killed before it read its order
                data = b""
            yield json.loads(data) if data else {}
            if not data:
                return

    def describe(self, rank: int) -> str:
        """Return a text about the rank's last heartbeat: number, sender, time."""
        heard, number, address, port = _HEARD.unpack_from(self._heard, rank * _HEARD.size)
        if not number:
            return f"no heartbeat has come to port {self.port}"
        return f"heartbeat {number} from {socket.inet_ntoa(address)}:{port} at {time_of_day(heard)}"

    def restart(self) -> None:
        """Replace a process that has ended; `fileno` may change.

        Raises OSError, and changes nothing, if this machine cannot start one now.
        """
        ended, self._process = self._process, self._start()
        ended.end()

    def close(self) -> None:
        """End the process."""
        self._process.end()
        self._beats.close()
        self._heard.close()
        self._memory.close()


class HeartbeatClient:
    """A worker's side. A thread calls `on_silent` when the supervisor does not answer.

    `to` is from HeartbeatServer.address_at.
    A process that is killed, perhaps because memory was short, is replaced: without heartbeats the
    supervisor would lose the node.
    """

    def __init__(self, to: HeartbeatAddress, rank: int) -> None:
        self._to, self._rank = to, rank
        self._answered = threading.Event()
        self._memory = _Memory(_NUMBER.size)  # the last beat: the next process counts on from it
        self._changed = threading.Lock()
        self._closed = threading.Event()
        self._reading: threading.Thread | None = None
        self._process = self._start()

    def _start(self) -> _Process:
        is_known = self._answered.is_set()
        order = {"do": "ask", "to": to_json(self._to), "rank": self._rank, "is_known": is_known}
        return _Process(order, self._memory.descriptor)

    def follow(self, on_silent: Callable[[], None], on_step: Callable[[float], None]) -> None:
        """Call `on_silent` once when the supervisor has been silent for too long.

        Call `on_step` with the size of each step of this machine's clock, in seconds.
        """

        def read() -> None:
            while not self._closed.is_set():
                with contextlib.suppress(OSError):  # it was killed before it read an address
                    while report := self._process.reports.recv(_REPORT_BYTES):
                        if report.startswith(_SILENT):
                            self._hear_silence(int(report[len(_SILENT) :]), on_silent)
                        elif report.startswith(_STEP):
                            on_step(float(report[len(_STEP) :]))
                            continue
                        self._answered.set()
                self._restart()

        self._reading = threading.Thread(target=read, name="heartbeats", daemon=True)
        self._reading.start()

    def _hear_silence(self, turn: int, on_silent: Callable[[], None]) -> None:
        with self._changed:
            if turn == self._to.turn:  # else it was of a supervisor before this one
                on_silent()

    def _restart(self) -> None:
        """Replace a process that has ended, unless this client is closed."""
        self._closed.wait(BEAT_S)  # no more than one process per beat, whatever ends them
        with self._changed:
            if not self._closed.is_set():
                with contextlib.suppress(OSError):  # memory is short: the next try is after a beat
                    ended, self._process = self._process, self._start()
                    ended.end()

    @property
    def pid(self) -> int:
        """The id of the process that sends heartbeats."""
        return self._process.pid

    def turn_to(self, to: HeartbeatAddress) -> None:
        """Send heartbeats to another supervisor from now on; `to` is as at the beginning."""
        with self._changed:
            self._to = replace(to, turn=self._to.turn + 1)
            with contextlib.suppress(OSError):  # it was killed: the next process gets the address
                self._process.reports.send(json.dumps(to_json(self._to)).encode())

    def wait_for_answer(self) -> bool:
        """Wait for the first answer; return whether there was one in time."""
        return self._answered.wait(self._to.answer_s)

    def close(self) -> None:
        """End the process, and the thread that follows it."""
        with self._changed:
            self._closed.set()
            self._process.kill()
        if self._reading is not None:
            self._reading.join()
        self._process.end()
        self._memory.close()


class _Memory:
    """Memory that a process shares with the next one in its place, and with its owner."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("heartbeats")
        os.ftruncate(self.descriptor, size)

    def map(self) -> mmap.mmap:
        """Return the memory."""
        return mmap.mmap(self.descriptor, 0)

    def close(self) -> None:
        """Free the descriptor; what is mapped stays."""
        os.close(self.descriptor)


class _Process:
    """A process that ends with this one and reports through `reports`. `order` is its first order.

    It runs in another interpreter. A fork of this one would copy the locks that its other
    threads hold at that moment, and nobody would release them in the copy.
    """

    def __init__(self, order: dict[str, Any], *descriptors: int) -> None:
        self.reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed = (theirs.fileno(), *descriptors)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-IS", "-c", _PROGRAM, _ROOT, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=passed,
            )
        except OSError:
            self.reports.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        with contextlib.suppress(OSError):  # it was killed already: `reports` has its end
            self.reports.send(json.dumps(order).encode())

    def kill(self) -> None:
        """Kill the process; readers of `reports` then get its end."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process, if it has not ended, and free its resources."""
        self._process.kill()
        self._process.wait()
        self.reports.close()


def run_process(reports: int, memory: int, beats: int | None = None) -> None:
    """Send or answer heartbeats, as the owner orders, until the owner has ended.

    All arguments are descriptors. This is the main function of a _Process.
    """
    # systemd sends SIGTERM to each process of a unit; this one must outlive the worker.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rename_process("heartbeats")
    raise_priority()
    owner = socket.socket(fileno=reports)
    with contextlib.suppress(ConnectionError), mmap.mmap(memory, 0) as shared:
        os.close(memory)
        line = owner.recv(_REPORT_BYTES)
        if not line:
            return
        order = json.loads(line)
        if beats is None:
            _Asker(order, owner, shared).run(is_known=order["is_known"])
        else:
            _Answerer(order, owner, shared, socket.socket(fileno=beats)).run()


class _Reports:
    """The reports of a process to its owner, which may not read them for a while.

    Sending never waits: what the socket does not take is kept until `is_late` is false again. A
    node makes a report per silence, so there are few.
    """

    def __init__(self, owner: socket.socket) -> None:
        owner.setblocking(False)
        self._owner = owner
        self._kept: deque[bytes] = deque()

    def fileno(self) -> int:
        """Return the descriptor that is writable when `send` may send more."""
        return self._owner.fileno()

    @property
    def is_late(self) -> bool:
        """Return whether the owner has not taken all reports yet."""
        return bool(self._kept)

    def add(self, report: bytes) -> None:
        """Send the report after the earlier ones."""
        self._kept.append(report)
        self.send()

    def send(self) -> None:
        """Send what the owner takes of the kept reports. Raises ConnectionError at its end."""
        while self._kept:
            try:
                self._owner.send(self._kept[0])
            except BlockingIOError:
                return
            self._kept.popleft()


class _Answerer:
    """The supervisor's process: it records heartbeats, answers them and reports silences."""

    def __init__(
        self, order: dict[str, Any], owner: socket.socket, heard: mmap.mmap, beats: socket.socket
    ) -> None:
        self._key, self._ranks = bytes.fromhex(order["key"]), order["ranks"]
        self._notable_s, self._hung_s = order["notable_s"], order["hung_s"]
        self._heard, self._owner, self._beats = heard, owner, beats
        self._reports = _Reports(owner)
        self._watch = SilenceWatch(order["silence_s"])
        for rank in range(self._ranks):  # those that an earlier process has recorded
            if self._entry(rank)[1]:
                self._watch.hear(rank, time.monotonic())

    def run(self) -> None:
        """Work until the supervisor's process has ended."""
        look = time.monotonic()
        while True:
            late = [self._reports] if self._reports.is_late else []
            readable, writable, _ = select.select([self._beats, self._owner], late, [], BEAT_S / 4)
            if self._owner in readable:  # the supervisor has closed its end
                return
            if writable:
                self._reports.send()
            if self._beats in readable:
                with contextlib.suppress(OSError):  # all are read
                    for _ in range(self._ranks):
                        self._answer(*self._beats.recvfrom(64))
            if time.monotonic() >= look:
                look = time.monotonic() + BEAT_S / 4
                for rank in self._watch.look(time.monotonic()):
                    self._report(rank=rank, last_heard=self._entry(rank)[0])

    def _answer(self, data: bytes, sender: Any) -> None:
        """Record the heartbeat and answer it; ignore one older than the last (replay)."""
        rank, number = unseal(self._key, _QUESTION, data) or (0, 0)
        if rank >= self._ranks or number <= self._entry(rank)[1]:
            return
        silence = self._watch.hear(rank, time.monotonic())
        address = socket.inet_aton(sender[0]), sender[1]
        _HEARD.pack_into(self._heard, rank * _HEARD.size, time.time(), number, *address)
        if silence >= self._notable_s:
            self._report(rank=rank, silence_s=round(silence, 1))
        (sign_of_life,) = _LIFE.unpack_from(self._heard, self._ranks * _HEARD.size)
        if time.monotonic() - sign_of_life < self._hung_s:
            with contextlib.suppress(OSError):  # the network to this node is down
                self._beats.sendto(seal(self._key, _ANSWER, rank, number), sender)

    def _entry(self, rank: int) -> Any:
        return _HEARD.unpack_from(self._heard, rank * _HEARD.size)

    def _report(self, **fields: Any) -> None:
        self._reports.add(json.dumps(fields).encode())


class _Asker:
    """The worker's process: it sends heartbeats and reports whether they are answered."""

    def __init__(self, order: dict[str, Any], owner: socket.socket, last: mmap.mmap) -> None:
        self._rank, self._owner, self._last = order["rank"], owner, last
        self._reports = _Reports(owner)
        self._turn_to(from_json(HeartbeatAddress, order["to"]))
        self._clock = StepWatch()
        self._beats = _socket()

    def run(self, *, is_known: bool) -> None:
        """Work until the worker's process has ended; `is_known` supervisors have answered it."""
        if is_known:
            self._watch.hear(0, time.monotonic())
        while True:
            number = _NUMBER.unpack(self._last[:])[0] + 1
            _NUMBER.pack_into(self._last, 0, number)  # the supervisor ignores numbers it knows
            with contextlib.suppress(OSError):  # no route at the moment
                question = seal(self._key, _QUESTION, self._rank, number)
                self._beats.sendto(question, self._address)
            beat = time.monotonic() + BEAT_S
            while (left := beat - time.monotonic()) > 0:
                late = [self._reports] if self._reports.is_late else []
                readable, writable, _ = select.select([self._beats, self._owner], late, [], left)
                if writable:
                    self._reports.send()
                if self._owner in readable:
                    data = self._owner.recv(_REPORT_BYTES)
                    if not data:
                        return
                    self._turn_to(from_json(HeartbeatAddress, json.loads(data)))
                    self._watch.hear(0, time.monotonic())  # its silence counts from now on
                if self._beats in readable:
                    data = b""
                    with contextlib.suppress(OSError):  # the network is down: that is silence
                        data = self._beats.recv(64)
                    self._take(data)
            if self._watch.look(time.monotonic()):
                self._reports.add(_SILENT + str(self._turn).encode())
            if step := self._clock.look():
                self._reports.add(_STEP + f"{step:.1f}".encode())

    def _turn_to(self, to: HeartbeatAddress) -> None:
        self._address, self._key = (to.address, to.port), bytes.fromhex(to.key)
        self._watch = SilenceWatch(to.silence_s)
        self._turn = to.turn
        self._newest = 0

    def _take(self, data: bytes) -> None:
        """Record an answer to this rank if it is newer than the earlier ones."""
        rank, number = unseal(self._key, _ANSWER, data) or (self._rank, 0)
        if rank != self._rank or number <= self._newest:
            return
        if not self._newest:
            self._reports.add(b"answered")
        self._newest = number
        self._watch.hear(0, time.monotonic())


def raise_priority() -> None:
    """Raise this process's priority above that of a job's processes, if the machine permits it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:  # a container without CAP_SYS_NICE, or real-time groups without a share
        with contextlib.suppress(OSError):  # it then keeps the job's priority
            os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)


def _socket() -> socket.socket:
    """Return a UDP socket that never blocks."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, _SO_PRIORITY, _INTERACTIVE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)  # at most rmem_max
    with contextlib.suppress(OSError):  # without CAP_NET_ADMIN
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _UNREAD_BYTES)
    return made
