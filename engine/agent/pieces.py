"""Lines put together again from the pieces in which slow or long ones arrive."""

from __future__ import annotations

from engine.agent.journal import Message

LONGEST = 64 * 1024  # characters that are kept of a line; the rest of it is not looked at


class Pieces:
    """The unfinished line of every node's streams."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, str], str] = {}

    def line(self, output: Message) -> str | None:
        """The line that the event `output` ends, or None where it ends none."""
        key = (output["rank"], output["stream"])
        text: str = (self._begun.pop(key, "") + output["text"])[:LONGEST]
        if output["ends_line"]:
            return text
        self._begun[key] = text
        return None

    def rest(self) -> list[tuple[int, str, str]]:
        """Return what never got an end, as rank, stream and text; nothing is held afterwards."""
        rest = [(rank, stream, text) for (rank, stream), text in self._begun.items()]
        self._begun.clear()
        return rest
