"""The process that sends or answers heartbeats for its owner (heartbeat.py): its program.

Its owner gives it one order as JSON. Nine of these processes start with a run of eight nodes, so it
imports no class of the contract. What it shares with its owner, reports, memory and sockets, is
here too.
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
import time
from collections import deque
from typing import Any

from engine.agent.journal.clock import StepWatch
from engine.agent.link.process_title import rename_process

BEAT_S = 1.0
SILENT = b"silent "  # a worker's process reports this, and how often it has turned to another head
STEP = b"clock "  # a worker's process reports this, and by how many seconds the clock was set
REPORT_BYTES = 1024  # more than a report or an order has
NUMBER = struct.Struct("=Q")  # of a worker's last beat
LIFE = struct.Struct("=d")  # the supervisor's last sign of life, on the monotonic clock
HEARD = struct.Struct("=dQ4sH")  # time of day, number of the beat, address and port of its sender
_INTERACTIVE = 6  # TC_PRIO_INTERACTIVE (linux/pkt_sched.h): sent before the job's bulk data
# For a beat of 2,048 nodes at once: the kernel counts 768 bytes for a datagram, and its default of
# 208 KiB (net.core.rmem_default) holds 277.
_UNREAD_BYTES = 2 << 20
_SO_RCVBUFFORCE = 33  # socket(7): beyond rmem_max, with CAP_NET_ADMIN
_SO_PRIORITY = 12  # socket(7); PyPy does not name it


def open_socket() -> socket.socket:
    """Return a UDP socket that never blocks."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, _SO_PRIORITY, _INTERACTIVE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)  # at most rmem_max
    with contextlib.suppress(OSError):  # without CAP_NET_ADMIN
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _UNREAD_BYTES)
    return made


STALL_S = 3.0
"""Seconds between two calls, three heartbeats, after which the caller counts as stopped."""


class SilenceWatch:
    """A watch for silent peers. The caller passes all times, in seconds of one clock.

    If the caller itself was stopped (more than STALL_S between two calls), that time does not count
    as silence of the peers: their heartbeats may have arrived without being read.
    """

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._heard: dict[int, float] = {}
        self._reported: set[int] = set()
        self._now: float | None = None

    def hear(self, peer: int, now: float) -> float:
        """Record a heartbeat of `peer`; return the seconds since its last one, 0 for the first."""
        self._advance(now)
        silence = now - self._heard.get(peer, now)
        if peer not in self._reported:
            self._heard[peer] = now
        return silence

    def look(self, now: float) -> list[int]:
        """Return the peers that have become silent since the last call, each of them once."""
        self._advance(now)
        silent = [peer for peer, at in self._heard.items() if now - at >= self._bound_s]
        for peer in silent:
            del self._heard[peer]
        self._reported.update(silent)
        return silent

    def _advance(self, now: float) -> None:
        stopped_s = 0.0 if self._now is None else now - self._now
        self._now = now
        if stopped_s > STALL_S:
            self._heard = {peer: at + stopped_s for peer, at in self._heard.items()}


_HEADER = struct.Struct(">cIQ")  # question or answer, rank, number of the beat
_QUESTION, _ANSWER = b"q", b"a"
_SEAL = 16  # bytes of HMAC-SHA256
_LOWEST = -20  # nice's most favourable value


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


def run_process(reports: int, memory: int, beats: int | None = None) -> None:
    """Send or answer heartbeats, as the owner orders, until the owner has ended.

    All arguments are descriptors. This is the main function of a process.
    """
    # systemd sends SIGTERM to each process of a unit; this one must outlive the worker.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rename_process("heartbeats")
    raise_priority()
    owner = socket.socket(fileno=reports)
    with contextlib.suppress(ConnectionError), mmap.mmap(memory, 0) as shared:
        os.close(memory)
        line = owner.recv(REPORT_BYTES)
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
        HEARD.pack_into(self._heard, rank * HEARD.size, time.time(), number, *address)
        if silence >= self._notable_s:
            self._report(rank=rank, silence_s=round(silence, 1))
        (sign_of_life,) = LIFE.unpack_from(self._heard, self._ranks * HEARD.size)
        if time.monotonic() - sign_of_life < self._hung_s:
            with contextlib.suppress(OSError):  # the network to this node is down
                self._beats.sendto(seal(self._key, _ANSWER, rank, number), sender)

    def _entry(self, rank: int) -> Any:
        return HEARD.unpack_from(self._heard, rank * HEARD.size)

    def _report(self, **fields: Any) -> None:
        self._reports.add(json.dumps(fields).encode())


class _Asker:
    """The worker's process: it sends heartbeats and reports whether they are answered."""

    def __init__(self, order: dict[str, Any], owner: socket.socket, last: mmap.mmap) -> None:
        self._rank, self._owner, self._last = order["rank"], owner, last
        self._reports = _Reports(owner)
        self._turn_to(order["to"])
        self._clock = StepWatch()
        self._beats = open_socket()

    def run(self, *, is_known: bool) -> None:
        """Work until the worker's process has ended; `is_known` supervisors have answered it."""
        if is_known:
            self._watch.hear(0, time.monotonic())
        while True:
            number = NUMBER.unpack(self._last[:])[0] + 1
            NUMBER.pack_into(self._last, 0, number)  # the supervisor ignores numbers it knows
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
                    data = self._owner.recv(REPORT_BYTES)
                    if not data:
                        return
                    self._turn_to(json.loads(data))
                    self._watch.hear(0, time.monotonic())  # its silence counts from now on
                if self._beats in readable:
                    data = b""
                    with contextlib.suppress(OSError):  # the network is down: that is silence
                        data = self._beats.recv(64)
                    self._take(data)
            if self._watch.look(time.monotonic()):
                self._reports.add(SILENT + str(self._turn).encode())
            if step := self._clock.look():
                self._reports.add(STEP + f"{step:.1f}".encode())

    def _turn_to(self, to: dict[str, Any]) -> None:
        """Ask the supervisor at `to`, a HeartbeatAddress as JSON data."""
        self._address, self._key = (to["address"], to["port"]), bytes.fromhex(to["key"])
        self._watch = SilenceWatch(to["silence_s"])
        self._turn = to["turn"]
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
