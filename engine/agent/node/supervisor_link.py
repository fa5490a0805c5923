"""The worker's connections to the supervisor: first its pipes, then a socket on its node.

When the supervisor is killed, the connection ends, and the job goes on. The next supervisor
connects to the socket, through `attach` on this node, and says which events its journal has.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path
from typing import Any

from engine.agent.journal.run_folders import used_in_this_boot
from engine.agent.link.event_stream import EventStream, Message
from engine.agent.link.heartbeat import HeartbeatClient
from engine.agent.link.listener import Listener
from engine.agent.link.process_title import NAME
from engine.agent.node.kernel_log import lines_since
from engine.contract.codec import from_json
from engine.contract.event import to_line
from engine.contract.node_plan import HeartbeatAddress
from engine.contract.worker_events import NoWorker, Reached

SOCKET = "attach.sock"
NO_WORKER = 4  # exit status of `attach`
KILLED, ENDED, REBOOTED, OUT_OF_MEMORY = "killed", "ended", "rebooted", "out of memory"
"""Why a node has no worker, in the event `no_worker` of `attach`."""
_WAITING = 8  # supervisors that connect at once; there is one


class Attachment:
    """The connections of one worker, one at a time: a new one replaces the one before.

    `post` gets the supervisor's orders, and `{"do": "supervisor_lost"}` if there has been no
    connection for `lost_s`.
    """

    def __init__(
        self,
        folder: Path,
        report: EventStream,
        heartbeats: HeartbeatClient,
        post: Callable[[Message], None],
        lost_s: float,
    ) -> None:
        self._report, self._heartbeats, self._post = report, heartbeats, post
        self._lost_s = lost_s
        self._lock = threading.Lock()
        self._current: object = None
        self._timer: threading.Timer | None = None
        self._listener = Listener(folder / SOCKET, self._attend)
        self.is_connected = True

    def follow(self, control: RawIOBase) -> None:
        """Read orders from `control`, the supervisor's pipe."""
        self._take(control)
        threading.Thread(target=self._serve, args=(control, lambda: None), daemon=True).start()

    def listen(self) -> None:
        """Accept connections of other supervisors. Raises OSError if the socket is not possible."""
        self._listener.open(_WAITING)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _attend(self, connection: socket.socket) -> None:
        """Serve one connection: its first line is the greeting of a supervisor."""
        with connection, contextlib.suppress(OSError, ValueError, KeyError):  # it was killed too
            control = connection.makefile("rb", buffering=0)
            greeting = json.loads(control.readline())
            # First, so that the silence of the supervisor before never counts as this one's.
            self._heartbeats.turn_to(from_json(HeartbeatAddress, greeting["heartbeats"]))
            self._take(control)

            def begin() -> None:
                self._report.connect(connection.makefile("wb", buffering=0), greeting["received"])

            self._serve(control, begin)

    def _take(self, control: Any) -> None:
        """Make this the current connection."""
        with self._lock:
            self._current, self.is_connected = control, True
            if self._timer is not None:
                self._timer.cancel()

    def _serve(self, control: Any, begin: Callable[[], None]) -> None:
        """Begin a connection and pass on its orders; wait for the next one however it ends."""
        try:
            begin()
            self._read(control)
        except OSError:
            pass  # the connection broke
        finally:
            self._wait_for_next(control)

    def _read(self, control: Any) -> None:
        for line in control:
            order = json.loads(line)
            if order["do"] == "received":
                self._report.forget(order["sequence"])
            else:
                self._post(order)

    def _wait_for_next(self, control: Any) -> None:
        """Wait a limited time for another connection, if this is still the current one."""
        with self._lock:
            if self._current is not control:
                return
            self.is_connected = False
            self._timer = threading.Timer(self._lost_s, self._lose, (control,))
            self._timer.daemon = True
            self._timer.start()

    def _lose(self, control: Any) -> None:
        """Report the supervisor as lost, unless another one has connected since `control`."""
        with self._lock:  # a timer that runs already cannot be cancelled
            if self._current is control:
                self._post({"do": "supervisor_lost"})


def attach(folder: Path) -> int:
    """Connect stdin and stdout to the run's worker on this node, to its end.

    Return 0 when the worker has ended, and 1 when stdin has ended. Without a worker return
    NO_WORKER, with an event `no_worker` that says why.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(folder / SOCKET))
        except OSError:
            os.write(1, to_line(NoWorker(_why_no_worker(folder))).encode() + b"\n")
            sys.stderr.write("its worker is gone\n")
            return NO_WORKER
        os.write(1, to_line(Reached()).encode() + b"\n")
        threading.Thread(target=_forward_orders, args=(connection,), daemon=True).start()
        with contextlib.suppress(OSError):  # the worker was killed, or nobody reads
            while data := connection.recv(65536):
                while data:
                    data = data[os.write(1, data) :]
    sys.stderr.write("its worker ended\n")
    return 0


def _why_no_worker(folder: Path) -> str:
    """Return why the run has no worker on this node; one that ends by itself removes its socket."""
    if not (folder / SOCKET).exists():
        return ENDED
    used = used_in_this_boot(folder)
    if used is None:
        return REBOOTED
    kills = [line for line in lines_since(used) if "Killed process" in line]
    return OUT_OF_MEMORY if any(f"({NAME})" in line for line in kills) else KILLED


def _forward_orders(connection: socket.socket) -> None:
    while data := os.read(0, 65536):
        connection.sendall(data)
    os._exit(1)  # the supervisor is gone; the worker waits for the next one
