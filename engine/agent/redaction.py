"""The redaction of secrets: their values are replaced in the output of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable

SHOWN = "***"
SHORTEST = 8  # characters; what is shorter is found in harmless text too often


class Redaction:
    """One stream of text without the values, also if pieces of the text split them."""

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first: a value may be the beginning of another.
        longest_first = sorted({v for v in values if len(v) >= SHORTEST}, key=len, reverse=True)
        self._values = tuple(longest_first)
        self._any = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the redacted text so far, except for an end that may begin a value."""
        if not self._values:
            return text
        text, shown, place = self._held + text, "", 0
        undecided = self._undecided(text, place)
        found = self._any.search(text)
        while found and found.start() < undecided:
            shown += text[place : found.start()] + SHOWN
            place = found.end()
            undecided = self._undecided(text, place)
            found = self._any.search(text, place)
        self._held = text[undecided:]
        return shown + text[place:undecided]

    def rest(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        return self._any.sub(SHOWN, self._held)

    def _undecided(self, text: str, place: int) -> int:
        """Return the position from `place` on of a tail that may begin a value, else the end."""
        longest = len(self._values[0]) if self._values else 0
        for start in range(max(place, len(text) - longest + 1), len(text)):
            tail = text[start:]
            if any(value.startswith(tail) and value != tail for value in self._values):
                return start
        return len(text)
