"""Signs that a job runs: its readiness probe, and the ranks that its launcher started on the node.

A probe is a port that listens, or a command that exits with 0. Each rank writes a line to a FIFO.
A launcher that ignores its hostfile starts every rank on the head and succeeds. Only the ranks
themselves can report that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from engine.agent.link.event_stream import EventStream
from engine.agent.node.container import Container, Host
from engine.contract.node_plan import ReadyPlan
from engine.contract.worker_events import NodeNotReady, NodeReady, RankStarted

_PORT_S = 0.25  # between checks of a port
_COMMAND_S = 1.0  # between runs of a command
_LISTEN = "0A"  # st column of /proc/net/tcp: TCP_LISTEN (linux/include/net/tcp_states.h)


class Probe:
    """A readiness probe of the node `rank`. The command runs in `place`, with `environment`."""

    def __init__(
        self,
        ready: ReadyPlan,
        rank: int,
        place: Container | Host,
        environment: dict[str, str],
        is_running: Callable[[], bool],
    ) -> None:
        self._port, self._command, self._timeout_s = ready.port, ready.command, ready.timeout_s
        self._rank, self._place, self._environment = rank, place, environment
        self._is_running = is_running

    def run(self, report: EventStream) -> None:
        """Send NodeReady, or NodeNotReady after the time limit; neither if the job ends first."""
        deadline = time.monotonic() + self._timeout_s
        while self._is_running():
            missing = self._missing(deadline)
            if not missing:
                report.send(NodeReady(self._rank))
                return
            if time.monotonic() >= deadline:
                report.send(NodeNotReady(self._rank, f"{missing} after {self._timeout_s} s"))
                return
            time.sleep(_PORT_S if self._command is None else _COMMAND_S)

    def _missing(self, deadline: float) -> str:
        """Return the condition that is not true yet; empty if the job is ready."""
        if self._port is not None and not is_listening(self._port):
            return f"port {self._port} is not listening"
        if self._command is not None:
            try:
                if not self._succeeds(self._command, deadline):
                    return f"`{self._command}` does not exit 0"
            except OSError as error:  # memory is short, or the job removed its folder
                return f"`{self._command}` cannot be started: {error.strerror}"
        return ""

    def _succeeds(self, command: str, deadline: float) -> bool:
        process = self._place.spawn(
            ["bash", "-c", command],
            self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return process.wait(timeout=max(1.0, deadline - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False


def is_listening(port: int) -> bool:
    """Return whether a process listens on the TCP port, on any address of this machine."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


FIFO = "ranks"
_DRAIN_S = 5.0


class Ranks:
    """The FIFO in a run's folder. Each line `RANK SIZE` becomes an event of the node `rank`."""

    def __init__(self, folder: Path, rank: int, report: EventStream) -> None:
        self._path, self._rank, self._report = folder / FIFO, rank, report
        self._descriptor: int  # from `open` on
        self._reader = threading.Thread(target=self._read, daemon=True)

    def open(self) -> None:
        """Create the FIFO and read it in a thread; then ranks can write without waiting."""
        part = self._path.with_name(f"{FIFO}.{self._rank}.part")  # nodes may share the folder
        part.unlink(missing_ok=True)
        os.mkfifo(part, 0o600)
        self._descriptor = os.open(part, os.O_RDWR)  # a writer too, so there is no end of file
        part.replace(self._path)
        self._reader.start()

    def drain(self) -> None:
        """Wait until all lines that ranks have written are reported, at most _DRAIN_S."""
        if self._reader.is_alive():
            os.write(self._descriptor, b"\nend\n")
            self._reader.join(_DRAIN_S)

    def close(self) -> None:
        """Remove the FIFO."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        with open(self._descriptor, "rb", closefd=False) as lines:
            for line in lines:
                if line == b"end\n":
                    return
                words = line.split()
                if len(words) == 2 and all(word.isdigit() and len(word) < 10 for word in words):
                    process, size = map(int, words)
                    self._report.send(RankStarted(self._rank, process, size))
