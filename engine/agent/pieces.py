"""Lines joined from the pieces in which slow or long lines arrive."""

from __future__ import annotations

from engine.agent.journal import Message

LONGEST = 64 * 1024  # characters to keep of a line; the rest is ignored


class Pieces:
    """The unfinished line of each stream of each node."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, str], str] = {}

    def line(self, output: Message) -> str | None:
        """Return the line that the event `output` ends; None if it ends no line."""
        key = (output["rank"], output["stream"])
        text: str = (self._begun.pop(key, "") + output["text"])[:LONGEST]
        if output["ends_line"]:
            return text
        self._begun[key] = text
        return None

    def rest(self) -> list[tuple[int, str, str]]:
        """Return the unfinished lines as rank, stream and text, and forget them."""
        rest = [(rank, stream, text) for (rank, stream), text in self._begun.items()]
        self._begun.clear()
        return rest
