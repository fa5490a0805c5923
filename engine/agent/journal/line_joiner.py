"""Lines joined from the pieces in which slow or long lines arrive."""

from __future__ import annotations

from engine.contract.events import Output

LONGEST = 64 * 1024  # characters to keep of a line; the rest is ignored


class Pieces:
    """The unfinished line of each stream of each node."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, str], str] = {}

    def is_whole(self, output: Output) -> bool:
        """Return whether the event `output` has whole lines alone."""
        return output.ends_line and (output.rank, output.stream) not in self._begun

    def lines(self, output: Output) -> list[str]:
        """Return the lines that the event `output` ends."""
        key = (output.rank, output.stream)
        lines = (self._begun.pop(key, "") + output.text).split("\n")
        if not output.ends_line:
            self._begun[key] = lines.pop()[:LONGEST]
        return [line[:LONGEST] for line in lines]

    def rest(self) -> list[tuple[int, str, str]]:
        """Return the unfinished lines as rank, stream and text, and forget them."""
        rest = [(rank, stream, text) for (rank, stream), text in self._begun.items()]
        self._begun.clear()
        return rest
