"""A complaint about a place in a file that a person wrote."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One complaint; `str()` gives `cluster.yaml:12:5: E102 message; what to do`.

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
        text = f"{self.file}:{self.line}:{self.column}: {self.code} {self.message}; {self.hint}"
        # What stood in the file may hold line breaks and terminal codes.
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)

    @property
    def severity(self) -> Literal["error", "warning"]:
        """An error makes the file invalid, a warning does not."""
        return "warning" if self.code.startswith("W") else "error"
