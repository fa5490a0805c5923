"""A diagnostic: one mistake at one place of a file that a person wrote."""

from dataclasses import dataclass
from typing import Literal

LONGEST_LINE = 270
"""The limit of a diagnostic's line after the position, whatever the file's values are."""


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One mistake in a file; `str()` gives `cluster.yaml:12:5: E102 message; what to do`.

    Lines and columns count from 1. `file` is the path as the user gave it. The code's first letter
    is the severity; config/loading/codes.py lists all codes.
    """

    file: str
    line: int
    column: int
    code: str
    message: str
    hint: str

    def __str__(self) -> str:
        text = f"{self.code} {self.message}; {self.hint}"
        # Text from the file may hold line breaks and terminal codes.
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        if len(text) > LONGEST_LINE:
            text = f"{text[: LONGEST_LINE - 1]}…"
        return f"{self.file}:{self.line}:{self.column}: {text}"

    @property
    def severity(self) -> Literal["error", "warning"]:
        """`error` for a diagnostic that makes the file invalid, else `warning`."""
        return "warning" if self.code.startswith("W") else "error"
