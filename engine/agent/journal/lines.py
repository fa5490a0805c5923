"""Lines as a terminal would show them, from the pieces and batches in which output arrives.

The worker sends a line that takes long (a row of nccl-tests at 8 GiB) in pieces, so that users see
its progress, and many short lines at once. Readers need each whole line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from engine.contract.worker_events import Output

LONGEST = 64 * 1024
"""Characters of a line. Longer lines are cut, so that output without line ends takes linear time
and little memory."""


class Line(NamedTuple):
    """A line of a rank; `time` is that of its first piece."""

    time: float
    rank: int
    stream: str
    text: str


class WholeLines:
    """The unfinished lines of all ranks and streams.

    After a carriage return the next text overwrites the line, as on a terminal. So a progress bar
    is one line with its last state.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], _Unfinished] = {}

    def is_whole(self, event: Output) -> bool:
        """Return whether the event has whole lines alone."""
        return event.ends_line and (event.rank, event.stream) not in self._held

    def feed(self, event: Output) -> tuple[Line, ...]:
        """Return the lines that `event` completes."""
        time, rank, stream, text = event.time, event.rank, event.stream, event.text
        held = self._held.pop((rank, stream), None)
        if held is None and event.ends_line and "\r" not in text and len(text) <= LONGEST:
            return tuple(Line(time, rank, stream, line) for line in text.split("\n"))
        lines = []
        *ended, last = text.split("\n")
        if event.ends_line:
            ended, last = [*ended, last], ""
        for part in ended:
            held = held or _Unfinished(time)
            lines += [Line(held.time, rank, stream, cut) for cut in held.add(part)]
            lines.append(Line(held.time, rank, stream, held.state()))
            held = None
        if last or held is not None:
            held = held or _Unfinished(time)
            lines += [Line(held.time, rank, stream, cut) for cut in held.add(last)]
            self._held[rank, stream] = held
        return tuple(lines)

    def state(self, rank: int, stream: str) -> str:
        """Return the unfinished line as it is now; empty if there is none."""
        held = self._held.get((rank, stream))
        return "" if held is None else held.state()

    def rest(self) -> tuple[Line, ...]:
        """Return the unfinished lines, and forget them."""
        rest = tuple(
            Line(held.time, rank, stream, held.state())
            for (rank, stream), held in self._held.items()
        )
        self._held.clear()
        return rest


class _Unfinished:
    """A line that is not complete yet."""

    def __init__(self, time: float) -> None:
        self.time = time
        self._under = ""
        """The line before its last carriage return."""
        self._over: list[str] = []
        self._length = 0

    def add(self, text: str) -> Iterator[str]:
        """Add the text; yield the parts that the line is too long for."""
        *overwritten, last = text.split("\r")
        for part in overwritten:
            yield from self._append(part)
            self._under = self.state()
            self._over, self._length = [], 0
        yield from self._append(last)

    def state(self) -> str:
        """Return the line so far."""
        over = "".join(self._over)
        if "\x1b" in over or "\x1b" in self._under:  # it has other widths than characters
            return over or self._under
        return over + self._under[len(over) :]

    def _append(self, text: str) -> Iterator[str]:
        while self._length + len(text) > LONGEST:
            part = text[: LONGEST - self._length]
            text = text[len(part) :]
            yield "".join((*self._over, part))
            self._under, self._over, self._length = "", [], 0
        self._over.append(text)
        self._length += len(text)
