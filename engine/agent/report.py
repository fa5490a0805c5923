"""The worker's events, on their way to the supervisor."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from typing import Any, BinaryIO

Message = dict[str, Any]
_WAITING = 1000  # events; a job that prints faster than they travel has to wait
_CLOSE_S = 5


class Report:
    """Writes events as JSON lines from a thread of its own, so that a stuck pipe stops nobody."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def send(self, kind: str, **fields: Any) -> None:
        """The event will be written. Output waits for room; where none comes, events are lost."""
        event: Message = {"kind": kind, "time": round(time.time(), 3)}
        event.update(fields)
        with contextlib.suppress(queue.Full):
            self._waiting.put(json.dumps(event).encode() + b"\n", timeout=_CLOSE_S)

    def send_output(self, **fields: Any) -> None:
        """The output event will be written; returns when there is room, however long that takes."""
        event: Message = {"kind": "output", "time": round(time.time(), 3)}
        event.update(fields)
        self._waiting.put(json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        """What was sent is written, unless the reader is stuck."""
        try:
            self._waiting.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._writer.join(_CLOSE_S)

    def _write(self) -> None:
        broken = False
        while True:
            line = self._waiting.get()
            if line is None:
                return
            if broken:  # nobody listens any more; the job ends through stdin's end of file
                continue
            try:
                self._stream.write(line)
                if self._waiting.empty():
                    self._stream.flush()
            except OSError:
                broken = True
