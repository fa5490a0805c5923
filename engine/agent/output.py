"""A job's output: bytes of a pipe become lines of a log and events."""

from __future__ import annotations

import codecs
import select
import threading
from pathlib import Path
from typing import IO

from engine.agent.event_stream import EventStream
from engine.agent.redaction import Redaction

PARTIAL_S = 1.0  # an unfinished line is sent after this time
PIECE = 32 * 1024  # characters of one event at most


class Log:
    """The log `rank-N.log` on the node, with whole lines of both streams, also sent as events.

    On a full disk the log ends, with an event that reports it; the events of output go on.
    """

    def __init__(self, path: Path, report: EventStream) -> None:
        path.touch(mode=0o600)
        self._file = path.open("ab", buffering=0)
        self._name, self._ends = path.name, False
        self._report = report
        self._lock = threading.Lock()
        self.size = self._file.tell()
        """Bytes of all output so far."""

    def add(self, stream: str, text: str, ends_line: bool) -> None:
        """Add the text to the log, and send an event with its offset in the log."""
        with self._lock:
            offset, data = self.size, (text + ("\n" if ends_line else "")).encode()
            self.size += len(data)
            if not self._ends:
                self._keep(data)
            self._report.send_output(stream=stream, text=text, ends_line=ends_line, offset=offset)

    def _keep(self, data: bytes) -> None:
        try:
            while data:  # a disk that becomes full accepts only a part
                data = data[self._file.write(data) :]
        except OSError as error:
            self._ends = True
            self._report.send("disk_full", text=f"{self._name} ends here: {error.strerror}")


def pump(pipe: IO[bytes], stream: str, log: Log, redaction: Redaction) -> None:
    """Copy everything from `pipe` to the log, without secrets, until the end of the pipe.

    Bytes that are not UTF-8 become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    while True:
        if held and not select.select([pipe], [], [], PARTIAL_S)[0]:
            log.add(stream, held, ends_line=False)
            held = ""
        data = pipe.read1(65536)  # type: ignore[attr-defined]
        held += redaction.feed(decoder.decode(data, final=not data))
        if not data:
            held += redaction.rest()
        *lines, held = held.split("\n")
        for line in lines:
            _add_pieces(log, stream, line, ends_line=True)
        while len(held) > PIECE:
            log.add(stream, held[:PIECE], ends_line=False)
            held = held[PIECE:]
        if not data:
            break
    if held:
        log.add(stream, held, ends_line=False)


def _add_pieces(log: Log, stream: str, line: str, ends_line: bool) -> None:
    while len(line) > PIECE:
        log.add(stream, line[:PIECE], ends_line=False)
        line = line[PIECE:]
    log.add(stream, line, ends_line)
