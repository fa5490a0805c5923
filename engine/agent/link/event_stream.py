"""The stream of events from the worker to the supervisor."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from engine.agent.journal.clock import RunClock
from engine.contract.event import Event, to_line
from engine.contract.worker_events import Output, WorkerEnded

Message = dict[str, Any]
_WAITING = 1000  # events of output that are not sent yet; with more, the job has to wait
_SPOOL_BYTES = 16 << 20  # output to keep that is not in the journal yet; with more, the job waits
_AT_ONCE = 64  # events to write at once
_CHECK_S = 1.0  # interval at which `close` checks for a reader


class Stream(Protocol):
    """An unbuffered stream: a buffer would keep bytes for a reader that is gone."""

    def write(self, data: bytes, /) -> int | None:
        """Write some of the bytes and return their number."""


class EventStream:
    """The worker's events as JSON lines, numbered in `sequence` from 1 on.

    It keeps every event until the supervisor has it in its journal (`forget`), so that the next
    supervisor gets all that the last one did not (`connect`). Separate threads write: a stuck pipe
    blocks nobody else.
    Their times are those of a RunClock.
    Events of output wait while too many are unsent. All other events are accepted at once, so that
    output cannot hold back the report of a job's end.
    """

    def __init__(self, stream: Stream) -> None:
        self._clock = RunClock()
        self._changed = threading.Condition()
        self._kept: deque[tuple[int, bytes, int]] = deque()  # number, line, bytes of output
        self._kept_bytes = 0
        self._last = self._received = 0
        self._is_closed = False
        self.connect(stream, 0)

    def connect(self, stream: Stream, received: int) -> None:
        """Write to `stream` from now on, beginning with the event after number `received`."""
        self.forget(received)
        with self._changed:
            self._unsent = deque(self._kept)
            self._unsent_output = sum(size > 0 for _, _, size in self._unsent)
            self._stream: Stream | None = stream
            self._changed.notify_all()
        threading.Thread(target=self._write, args=(stream,), daemon=True).start()

    def forget(self, received: int) -> None:
        """Drop the events up to number `received`: the supervisor has them in its journal."""
        with self._changed:
            self._received = max(self._received, received)
            while self._kept and self._kept[0][0] <= received:
                self._kept_bytes -= self._kept.popleft()[2]
            self._changed.notify_all()

    def send(self, event: Event) -> None:
        """Queue the event behind the earlier ones, with its `sequence`, which its class must have.

        Return at once, but wait for room for output, without a time limit.
        """
        assert "sequence" in vars(event), event
        with self._changed:
            if isinstance(event, Output):
                self._changed.wait_for(self._has_room)
            self._add(event)

    def offer(self, event: Event) -> None:
        """Send an event that may be lost: drop it if it cannot be sent soon.

        It has no number, so no supervisor asks for it again.
        """
        with self._changed:
            if self._is_closed or self._stream is None or len(self._unsent) >= _WAITING:
                return
            line = to_line(event, time=self._clock.now())
            self._unsent.append((0, line.encode() + b"\n", 0))
            self._changed.notify_all()

    @property
    def is_full(self) -> bool:
        """Return whether output has to wait."""
        with self._changed:
            return not self._has_room()

    def close(self, has_reader: Callable[[], bool]) -> None:
        """Send `ended`; wait until the supervisor has all, or until `has_reader` returns false."""
        with self._changed:
            self._add(WorkerEnded())
            self._is_closed = True
            while self._received < self._last and has_reader():
                self._changed.wait(_CHECK_S)

    def _has_room(self) -> bool:
        if self._stream is not None and self._unsent_output >= _WAITING:
            return False
        return self._kept_bytes < _SPOOL_BYTES

    def _add(self, event: Event) -> None:
        if self._is_closed:  # from a process that has left the job's group
            return
        self._last += 1
        is_output = isinstance(event, Output)
        line = to_line(event, time=self._clock.now(), sequence=self._last).encode() + b"\n"
        entry = (self._last, line, len(line) if is_output else 0)
        self._kept.append(entry)
        self._unsent.append(entry)
        self._kept_bytes += entry[2]
        self._unsent_output += is_output
        self._changed.notify_all()

    def _write(self, stream: Stream) -> None:
        """Write to the stream until it breaks, or until another one takes its place."""
        try:
            while lines := self._take(stream):
                while lines:
                    lines = lines[stream.write(lines) :]
        except (OSError, ValueError):  # no reader any more, or closed
            with self._changed:
                if self._stream is stream:
                    self._stream = None
                    self._changed.notify_all()

    def _take(self, stream: Stream) -> bytes:
        """Wait for events and return some; none if the stream is not the current one."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsent or self._stream is not stream)
            if self._stream is not stream:
                return b""
            taken = [self._unsent.popleft() for _ in range(min(_AT_ONCE, len(self._unsent)))]
            self._unsent_output -= sum(size > 0 for _, _, size in taken)
            self._changed.notify_all()
        return b"".join(line for _, line, _ in taken)
