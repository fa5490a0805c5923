"""The worker's events, on their way to the supervisor."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

Message = dict[str, Any]
_WAITING = 1000  # events of output; a job that prints faster than they travel has to wait
_LOOK_S = 1.0  # between looks whether anybody listens still


class Report:
    """Writes events as JSON lines from a thread of its own, so that a stuck pipe stops nobody.

    Output has room for some events and waits for more; all other events always have room, because
    a job's end must not be lost behind what it printed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_WAITING)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def send(self, kind: str, **fields: Any) -> None:
        """Write the event, after those that were sent before; return at once."""
        self._waiting.put((_line(kind, fields), False))

    def send_output(self, **fields: Any) -> None:
        """Write an event of output; return when there is room, however long that takes."""
        self._room.acquire()
        self._waiting.put((_line("output", fields), True))

    @property
    def is_full(self) -> bool:
        """True while output has to wait."""
        if self._room.acquire(blocking=False):
            self._room.release()
            return False
        return True

    def close(self, is_heard: Callable[[], bool]) -> None:
        """Return when all that was sent is written, or `is_heard` says that nobody reads it."""
        self._waiting.put(None)
        while self._writer.is_alive() and is_heard():
            self._writer.join(_LOOK_S)

    def _write(self) -> None:
        broken = False
        while (waiting := self._waiting.get()) is not None:
            line, is_output = waiting
            if is_output:
                self._room.release()
            if broken:  # nobody listens any more; the job ends through stdin's end of file
                continue
            try:
                self._stream.write(line)
                if self._waiting.empty():
                    self._stream.flush()
            except OSError:
                broken = True
        # What is left in the stream's own buffer goes with the process's end.
        with contextlib.suppress(OSError):
            self._stream.flush()


def _line(kind: str, fields: Message) -> bytes:
    event: Message = {"kind": kind, "time": round(time.time(), 3)}
    event.update(fields)
    return json.dumps(event).encode() + b"\n"
