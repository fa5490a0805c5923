"""Pieces of output joined to the lines that the job printed.

The worker sends a line that takes long (a row of nccl-tests at 8 GiB) in pieces, so that users see
its progress. Parsers need whole lines.
"""

from collections.abc import Iterator

from engine.events import Output

LONGEST = 64 * 1024
"""Characters of a line. Longer lines are cut, so that output without line ends takes linear time
and little memory."""


class WholeLines:
    """The unfinished lines of all ranks and streams.

    A carriage return ends a line too: progress bars print no other end.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], _Pieces] = {}

    def feed(self, event: Output) -> tuple[Output, ...]:
        """Return the lines that `event` completes, with time and offset of their first pieces."""
        place = (event.rank, event.stream)
        if place not in self._held:
            if event.ends_line and "\r" not in event.text and len(event.text) <= LONGEST:
                return (event,)
            self._held[place] = _Pieces()
        lines = tuple(self._held[place].feed(event))
        if self._held[place].is_empty:
            del self._held[place]
        return lines

    def rest(self) -> tuple[Output, ...]:
        """Return the unfinished lines, and forget them."""
        rest = tuple(pieces.take() for pieces in self._held.values())
        self._held.clear()
        return rest


class _Pieces:
    """The unfinished line of one stream."""

    def __init__(self) -> None:
        self._first: Output | None = None
        self._texts: list[str] = []
        self._length = 0

    @property
    def is_empty(self) -> bool:
        return self._first is None

    def feed(self, event: Output) -> Iterator[Output]:
        text, offset = event.text, event.offset
        if event.ends_line:
            text = text.removesuffix("\r")  # the program ends its lines with CR LF
        *ended, last = text.split("\r")
        for part in ended:
            yield from self._add(event, part, offset)
            yield self._end(event, offset)
            offset += len(part.encode()) + 1
        yield from self._add(event, last, offset)
        if event.ends_line:
            yield self._end(event, offset)

    def take(self) -> Output:
        """Return the line so far, and start a new one."""
        assert self._first is not None
        line = self._first.model_copy(update={"text": "".join(self._texts)})
        self._first, self._texts, self._length = None, [], 0
        return line

    def _add(self, event: Output, text: str, offset: int) -> Iterator[Output]:
        while text:
            if self._first is None:
                self._first = event.model_copy(update={"offset": offset})
            part = text[: LONGEST - self._length]
            text = text[len(part) :]
            offset += len(part.encode())
            self._texts.append(part)
            self._length += len(part)
            if text:  # longer than LONGEST: cut it here
                yield self._end(event, offset)

    def _end(self, event: Output, offset: int) -> Output:
        """Return the line, completed; an empty line begins where `event` does."""
        if self._first is None:
            self._first = event.model_copy(update={"offset": offset})
        return self.take().model_copy(update={"ends_line": True})
