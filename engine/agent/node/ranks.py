"""The ranks that a launcher started on a node: each writes a line to a FIFO.

A launcher that ignores its hostfile starts every rank on the head and succeeds. Only the ranks
themselves can report that.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from engine.agent.link.event_stream import EventStream
from engine.contract.worker_events import RankStarted

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
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        self._descriptor = os.open(
            self._path, os.O_RDWR
        )  # it is a writer too, so there is no end of file
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
