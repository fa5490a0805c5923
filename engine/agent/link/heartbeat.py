"""Heartbeats between the supervisor and its workers: signed datagrams, one process on each side.

A worker's process sends one per second and the supervisor's process answers it, so each side knows
whether it can reach the other. They are separate processes, so that they never wait
for output, nor for Python's lock, which a thread without CPU time may hold. They do not wait
for their owners either: they keep reports that an owner does not read yet (heartbeat_process.py).
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.agent.journal.clock import time_of_day
from engine.agent.link.heartbeat_process import (
    BEAT_S,
    HEARD,
    LIFE,
    NUMBER,
    REPORT_BYTES,
    SILENT,
    STEP,
    open_socket,
)
from engine.contract.codec import to_json
from engine.contract.node_plan import HeartbeatAddress

if TYPE_CHECKING:
    from engine.agent.link.times import Times

# The folder or archive with the package `engine`, and the descriptors for run_process.
_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[1])
from engine.agent.link.heartbeat_process import run_process
run_process(*map(int, sys.argv[2:]))
"""
_ROOT = str(Path(__file__).parents[3])


class HeartbeatServer:
    """The supervisor's side for `ranks` nodes; it watches each from its first heartbeat on."""

    def __init__(self, key: bytes, ranks: int, times: Times) -> None:
        # The process writes an entry per rank; after them is the supervisor's sign of life.
        self._life = ranks * HEARD.size
        self._memory = _Memory(self._life + LIFE.size)
        self._heard = self._memory.map()
        self.signal_alive()
        self._key, self._times = key, times
        self._order = {
            "do": "answer",
            "key": key.hex(),
            "ranks": ranks,
            "silence_s": times.silence_s,
            "notable_s": times.notable_s,
            "hung_s": times.hung_s,
        }
        self._beats = open_socket()  # kept over restarts: workers know its port
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
            answer_s=self._times.answer_s,
            silence_s=self._times.head_silence_s,
        )

    def signal_alive(self) -> None:
        """Show that the supervisor works: the process then answers for `hung_s` more."""
        LIFE.pack_into(self._heard, self._life, time.monotonic())

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
                data = self._process.reports.recv(REPORT_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # it was killed before it read its order
                data = b""
            yield json.loads(data) if data else {}
            if not data:
                return

    def describe(self, rank: int) -> str:
        """Return a text about the rank's last heartbeat: number, sender, time."""
        heard, number, address, port = HEARD.unpack_from(self._heard, rank * HEARD.size)
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
        self._memory = _Memory(NUMBER.size)  # the last beat: the next process counts on from it
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
                    while report := self._process.reports.recv(REPORT_BYTES):
                        if report.startswith(SILENT):
                            self._hear_silence(int(report[len(SILENT) :]), on_silent)
                        elif report.startswith(STEP):
                            on_step(float(report[len(STEP) :]))
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
