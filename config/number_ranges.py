"""Numbers with runs of neighbours folded, as in names of nodes and in messages about ranks.

The agent's bundle takes this file with it (engine/session/bundle.py): the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterable


def fold_numbers(numbers: Iterable[int], separator: str) -> str:
    """Return the numbers in order, neighbours as a range: `0-2,5`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return separator.join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
