"""Heartbeats between the supervisor and its workers: signed datagrams, one process on each side.

A worker's process sends one per second and the supervisor's process answers it, so each side knows
whether it can reach the other. They are separate processes (docs/decisions/180), so that they never
wait for output, nor for Python's lock, which a thread without CPU time may hold.
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
import threading
import time
from collections.abc import Callable
from typing import Any

from engine.agent.clock import StepWatch, time_of_day
from engine.agent.silence import SilenceWatch

BEAT_S = 1.0
SILENCE_S = 15.0  # a node without heartbeats for this time is lost
HEAD_SILENCE_S = 20.0  # above SILENCE_S: the supervisor gives a node up before the node its job
ANSWER_S = 30.0  # for the first answer, before the job starts
NOTABLE_S = 5.0  # a silence of this time or more is reported when it ends
HUNG_S = 120.0  # without a sign of life for this time, the supervisor's process stops answering

_HEADER = struct.Struct(">cIQ")  # question or answer, rank, number of the beat
_QUESTION, _ANSWER = b"q", b"a"
_STEP = b"clock "  # a worker's process reports this, and by how many seconds the clock was set
_SEAL = 16  # bytes of HMAC-SHA256
_NUMBER = struct.Struct("=Q")  # of a worker's last beat
_LIFE = struct.Struct("=d")  # the supervisor's last sign of life, on the monotonic clock
_HEARD = struct.Struct("=dQ4sH")  # time of day, number of the beat, address and port of its sender
_LOWEST = -20  # nice's most favourable value
_INTERACTIVE = 6  # TC_PRIO_INTERACTIVE (linux/pkt_sched.h): sent before the job's bulk data


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
        self._heard = mmap.mmap(-1, ranks * _HEARD.size + _LIFE.size)
        self._life = ranks * _HEARD.size
        self.signal_alive()
        self._key = key
        self._beats = beats = _socket()  # kept over restarts: workers know its port
        beats.bind(("", 0))
        self.port: int = beats.getsockname()[1]
        self._answer = lambda to: _Answerer(key, self._heard, ranks, beats, to).run()
        self._process = _Process(self._answer)

    def address_at(self, host: str) -> dict[str, Any]:
        """Return the argument `to` of a HeartbeatClient that reaches this machine at `host`."""
        return {
            "address": host,
            "port": self.port,
            "key": self._key.hex(),
            "answer_s": ANSWER_S,
            "silence_s": HEAD_SILENCE_S,
        }

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

    def report(self) -> dict[str, Any]:
        """Return the next report; {} when the process has ended.

        It has `rank`, and `silence_s` for a silence that ended or `last_heard` (time of day) for a
        node that has been silent for too long.
        """
        data = self._process.reports.recv(256)
        return json.loads(data) if data else {}

    def describe(self, rank: int) -> str:
        """Return a text about the rank's last heartbeat: number, sender, time."""
        heard, number, address, port = _HEARD.unpack_from(self._heard, rank * _HEARD.size)
        if not number:
            return f"no heartbeat has come to port {self.port}"
        return f"heartbeat {number} from {socket.inet_ntoa(address)}:{port} at {time_of_day(heard)}"

    def restart(self) -> None:
        """Replace a process that has ended; `fileno` may change."""
        self._process.end()
        self._process = _Process(self._answer)

    def close(self) -> None:
        """End the process."""
        self._process.end()
        self._beats.close()
        self._heard.close()


class HeartbeatClient:
    """A worker's side. A thread calls `on_silent` when the supervisor does not answer.

    `to` is from HeartbeatServer.address_at: address, port and key, the seconds after which the
    supervisor counts as silent (`silence_s`), and the time limit for its first answer (`answer_s`).
    Create it before the worker has threads, because it forks. A process that is killed, perhaps
    because memory was short, is replaced: without heartbeats the supervisor would lose the node.
    """

    def __init__(self, to: dict[str, Any], rank: int) -> None:
        self._to, self._rank = to, rank
        self._answered = threading.Event()
        self._last = mmap.mmap(-1, _NUMBER.size)  # the process's; the next one counts on from it
        self._changed = threading.Lock()
        self._closed = threading.Event()
        self._process = self._start()

    def _start(self) -> _Process:
        to, is_known = self._to, self._answered.is_set()
        return _Process(
            lambda reports: _Asker(to, self._rank, reports, self._last).run(is_known=is_known)
        )

    def follow(self, on_silent: Callable[[], None], on_step: Callable[[float], None]) -> None:
        """Call `on_silent` once when the supervisor has been silent for too long.

        Call `on_step` with the size of each step of this machine's clock, in seconds.
        """

        def read() -> None:
            while not self._closed.is_set():
                with contextlib.suppress(OSError):  # it was killed before it read an address
                    while report := self._process.reports.recv(64):
                        if report == b"silent":
                            on_silent()
                        elif report.startswith(_STEP):
                            on_step(float(report[len(_STEP) :]))
                            continue
                        self._answered.set()
                self._restart()

        self._reading = threading.Thread(target=read, name="heartbeats", daemon=True)
        self._reading.start()

    def _restart(self) -> None:
        """Replace a process that has ended, unless this client is closed."""
        self._closed.wait(BEAT_S)  # no more than one process per beat, whatever ends them
        with self._changed:
            if not self._closed.is_set():
                self._process.end()
                self._process = self._start()

    @property
    def pid(self) -> int:
        """The id of the process that sends heartbeats."""
        return self._process.pid

    def turn_to(self, to: dict[str, Any]) -> None:
        """Send heartbeats to another supervisor from now on; `to` is as at the beginning."""
        with self._changed:
            self._to = to
            with contextlib.suppress(OSError):  # it was killed: the next process gets the address
                self._process.reports.send(json.dumps(to).encode())

    def wait_for_answer(self) -> bool:
        """Wait for the first answer; return whether there was one in time."""
        return self._answered.wait(self._to["answer_s"])

    def close(self) -> None:
        """End the process, and the thread that follows it."""
        with self._changed:
            self._closed.set()
            self._process.kill()
        self._reading.join()
        self._process.end()


class _Process:
    """A forked process that ends with this one and reports through `reports`.

    It is forked without exec, so that it starts at once and shares memory.
    """

    def __init__(self, run: Callable[[socket.socket], None]) -> None:
        self.reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # systemd sends SIGTERM to each process of a unit; this one must outlive the worker.
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                signal.set_wakeup_fd(-1)
                self.reports.close()
                raise_priority()
                run(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def kill(self) -> None:
        """Kill the process; readers of `reports` then get its end."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, if it has not ended, and free its resources."""
        self.kill()
        os.waitpid(self.pid, 0)
        self.reports.close()


class _Answerer:
    """The supervisor's process: it records heartbeats, answers them and reports silences."""

    def __init__(
        self, key: bytes, heard: mmap.mmap, ranks: int, beats: socket.socket, to: socket.socket
    ) -> None:
        self._key, self._heard, self._ranks = key, heard, ranks
        self._beats, self._reports = beats, to
        self._watch = SilenceWatch(SILENCE_S)
        for rank in range(ranks):  # those that an earlier process has recorded
            if self._entry(rank)[1]:
                self._watch.hear(rank, time.monotonic())
        _close_all_but(beats, to)

    def run(self) -> None:
        """Work until the supervisor's process has ended."""
        look = time.monotonic()
        while True:
            readable = select.select([self._beats, self._reports], [], [], BEAT_S / 4)[0]
            if self._reports in readable:  # the supervisor has closed its end
                return
            if self._beats in readable:
                with contextlib.suppress(OSError):  # the network to the node is down
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
        if silence >= NOTABLE_S:
            self._report(rank=rank, silence_s=round(silence, 1))
        (sign_of_life,) = _LIFE.unpack_from(self._heard, self._ranks * _HEARD.size)
        if time.monotonic() - sign_of_life < HUNG_S:
            self._beats.sendto(seal(self._key, _ANSWER, rank, number), sender)

    def _entry(self, rank: int) -> Any:
        return _HEARD.unpack_from(self._heard, rank * _HEARD.size)

    def _report(self, **fields: Any) -> None:
        self._reports.send(json.dumps(fields).encode())


class _Asker:
    """The worker's process: it sends heartbeats and reports whether they are answered."""

    def __init__(
        self, to: dict[str, Any], rank: int, reports: socket.socket, last: mmap.mmap
    ) -> None:
        self._rank, self._reports, self._last = rank, reports, last
        self._turn_to(to)
        self._clock = StepWatch()
        self._beats = _socket()
        _close_all_but(self._beats, reports)

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
                readable = select.select([self._beats, self._reports], [], [], left)[0]
                if self._reports in readable:
                    data = self._reports.recv(1024)
                    if not data:
                        return
                    self._turn_to(json.loads(data))
                    self._watch.hear(0, time.monotonic())  # its silence counts from now on
                if self._beats in readable:
                    with contextlib.suppress(
                        OSError
                    ):  # the network is down, which counts as silence
                        self._take(self._beats.recv(64))
            if self._watch.look(time.monotonic()):
                self._reports.send(b"silent")
            if step := self._clock.look():
                self._reports.send(_STEP + f"{step:.1f}".encode())

    def _turn_to(self, to: dict[str, Any]) -> None:
        self._address, self._key = (to["address"], to["port"]), bytes.fromhex(to["key"])
        self._watch = SilenceWatch(to["silence_s"])
        self._newest = 0

    def _take(self, data: bytes) -> None:
        """Record an answer to this rank if it is newer than the earlier ones."""
        rank, number = unseal(self._key, _ANSWER, data) or (self._rank, 0)
        if rank != self._rank or number <= self._newest:
            return
        if not self._newest:
            self._reports.send(b"answered")
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
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _INTERACTIVE)
    return made


def _close_all_but(*kept: socket.socket) -> None:
    """Close inherited descriptors: a pipe that stays open here would never end for its reader."""
    numbers = {each.fileno() for each in kept}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  pathlib opens more descriptors
        if int(name) not in numbers:
            with contextlib.suppress(OSError):  # the one of listdir, which is closed already
                os.close(int(name))
