"""A job's output: bytes of a pipe become lines of a log and events."""

from __future__ import annotations

import codecs
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from engine.agent.journal.redaction import Redaction
from engine.agent.journal.rotating_file import PieceFile, budget_on
from engine.agent.link.event_stream import EventStream
from engine.contract.worker_events import DiskFull, Output, Stream

PARTIAL_S = 1.0  # an unfinished line is sent after this time
PIECE = 32 * 1024  # characters of one event at most
BATCH = 8 * 1024
"""Characters of the short lines that are one event. More would save little time, and with many
nodes the supervisor's turns would take longer (benchmarks/lines.py, benchmarks/floods.py)."""


class Log:
    """The log `rank-N.log` on the node, with whole lines of both streams, also sent as events.

    It has pieces (journal/rotating_file.py): if it is over its budget, the oldest after the first
    go. On a full disk the log ends, with an event that reports it; the events of output go on.
    """

    def __init__(self, folder: Path, rank: int, report: EventStream) -> None:
        path = folder / f"rank-{rank}.log"
        self._file = PieceFile(path, budget_on(folder))
        self._rank, self._name, self._ends = rank, path.name, False
        self._report = report
        self._lock = threading.Lock()
        self.size = self._file.offset
        """Bytes of all output so far."""

    def finish(self) -> None:
        """Wait until the log's complete pieces are compressed."""
        self._file.finish()

    def add(self, stream: Stream, text: str, ends_line: bool) -> None:
        """Add the text to the log, and send an event with its offset in the log."""
        with self._lock:
            offset, data = self.size, (text + ("\n" if ends_line else "")).encode()
            self.size += len(data)
            if not self._ends:
                self._keep(data)
            self._report.send(Output(self._rank, stream, text, ends_line, offset))

    def _keep(self, data: bytes) -> None:
        try:
            self._file.append(data)
        except OSError as error:
            self._ends = True
            self._report.send(DiskFull(self._rank, f"{self._name} ends here: {error.strerror}"))


def pump(
    pipe: IO[bytes],
    stream: Stream,
    log: Log,
    redaction: Redaction,
    partial_s: float = PARTIAL_S,
) -> None:
    """Copy everything from `pipe` to the log, without secrets, until the end of the pipe.

    Bytes that are not UTF-8 become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    while True:
        if held and not select.select([pipe], [], [], partial_s)[0]:
            log.add(stream, held, ends_line=False)
            held = ""
        data = pipe.read1(65536)  # type: ignore[attr-defined]
        held += redaction.feed(decoder.decode(data, final=not data))
        if not data:
            held += redaction.rest()
        whole, ended, held = held.rpartition("\n")
        if ended:
            for text, ends_line in _batches(whole):
                log.add(stream, text, ends_line)
        while len(held) > PIECE:
            log.add(stream, held[:PIECE], ends_line=False)
            held = held[PIECE:]
        if not data:
            break
    if held:
        log.add(stream, held, ends_line=False)


def _batches(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of the text, many at a time, and whether the last of them is complete.

    A line that is longer than a batch comes in pieces.
    """
    start = 0
    while len(text) - start > BATCH:
        end = text.rfind("\n", start, start + BATCH + 1)
        if end < 0:
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            while end - start > PIECE:
                yield text[start : start + PIECE], False
                start += PIECE
        yield text[start:end], True
        start = end + 1
    if start <= len(text):
        yield text[start:], True
