"""The stream of events from the worker to the supervisor."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

Message = dict[str, Any]
_WAITING = 1000  # events of output that are not sent yet; with more, the job has to wait
_CHECK_S = 1.0  # interval at which `close` checks for a reader


class EventStream:
    """A writer of events as JSON lines, in a separate thread: a stuck pipe blocks nobody else.

    Events of output wait while too many are unsent. All other events are accepted at once, so that
    output cannot hold back the report of a job's end.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_WAITING)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def send(self, kind: str, **fields: Any) -> None:
        """Queue the event behind the earlier ones; return at once."""
        self._waiting.put((_line(kind, fields), False))

    def send_output(self, **fields: Any) -> None:
        """Queue an event of output; wait for room, without a time limit."""
        self._room.acquire()
        self._waiting.put((_line("output", fields), True))

    @property
    def is_full(self) -> bool:
        """Return whether output has to wait."""
        if self._room.acquire(blocking=False):
            self._room.release()
            return False
        return True

    def close(self, has_reader: Callable[[], bool]) -> None:
        """Wait until all events are written, or until `has_reader` returns false."""
        self._waiting.put(None)
        while self._writer.is_alive() and has_reader():
            self._writer.join(_CHECK_S)

    def _write(self) -> None:
        broken = False
        while (waiting := self._waiting.get()) is not None:
            line, is_output = waiting
            if is_output:
                self._room.release()
            if broken:  # no reader any more; the end of file on stdin ends the job
                continue
            try:
                self._stream.write(line)
                if self._waiting.empty():
                    self._stream.flush()
            except OSError:
                broken = True
        # Otherwise the stream's buffer would be lost when the process ends.
        with contextlib.suppress(OSError):
            self._stream.flush()


def _line(kind: str, fields: Message) -> bytes:
    event: Message = {"kind": kind, "time": round(time.time(), 3)}
    event.update(fields)
    return json.dumps(event).encode() + b"\n"
