"""One comparison: gpuctl's best time, a peer's best time, and the ratio that is wanted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

TIMES = 5
"""Repetitions of each work; the best one counts."""

Work = Callable[[], float]
"""Does the work once and returns the seconds that count."""


@dataclass(frozen=True)
class Row:
    """Seconds of gpuctl and of a peer in the same run; `wanted` is the largest ratio wished for."""

    name: str
    ours: float
    peer: float
    peer_name: str
    wanted: float

    @property
    def ratio(self) -> float:
        """How many times as long as the peer gpuctl takes."""
        return self.ours / self.peer


def best_of(times: int, *works: Work) -> tuple[float, ...]:
    """Return the least seconds of each work.

    Works take turns (A B A B …), so that a machine that slows down slows all of them.
    """
    rounds = [tuple(work() for work in works) for _ in range(times)]
    return tuple(min(seconds) for seconds in zip(*rounds, strict=True))


def as_json(rows: Iterable[Row]) -> dict[str, dict[str, float | str]]:
    """Return the rows by their names, as the JSON output has them."""
    return {
        row.name: {
            "ours": round(row.ours, 3),
            "peer": round(row.peer, 3),
            "peer_name": row.peer_name,
            "ratio": round(row.ratio, 2),
            "wanted": row.wanted,
        }
        for row in rows
    }


def as_table(rows: Iterable[Row]) -> str:
    """Return a Markdown table of the rows; seconds."""
    lines = ["| work | gpuctl | peer | | ratio | wanted |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row.name} | {row.ours:.2f} | {row.peer_name} | {row.peer:.2f}"
        f" | {row.ratio:.2f} | {row.wanted:g} |"
        for row in rows
    ]
    return "\n".join(lines)
