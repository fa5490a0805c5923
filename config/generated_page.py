"""Pages under docs/ whose lower part a program writes. A test fails if it differs from the code."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class GeneratedPage:
    """A page whose part below its marker is `reference`, which `python -m MODULE` writes.

    The part above is written by hand and does not change.
    """

    name: str
    module: str
    reference: str

    @property
    def path(self) -> Path:
        """Return the page's file."""
        return DOCS / self.name

    @property
    def marker(self) -> str:
        """Return the line between the two parts."""
        return f"<!-- Below: written by `python -m {self.module}`. -->\n"

    def text(self) -> str:
        """Return the page as it has to be."""
        by_hand, _, _ = self.path.read_text().partition(self.marker)
        return f"{by_hand}{self.marker}\n{self.reference}"

    def write(self) -> None:
        """Write the part below the marker."""
        self.path.write_text(self.text())


def merged_rows(rows: Iterable[tuple[str, str]], between: str = ", ") -> Iterator[str]:
    """Yield the rows of a table; rows that differ in their first cell alone are one row.

    A row is its first cell and the text of all others.
    """
    cells: dict[str, list[str]] = {}
    for first, others in rows:
        cells.setdefault(others, []).append(first)
    yield from (f"| {between.join(firsts)} | {others} |" for others, firsts in cells.items())
