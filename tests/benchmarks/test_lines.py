"""A client that is killed and attached again prints every line of every rank once, in order."""

import pytest

from benchmarks.lines import RANKS, Seen, measure

pytestmark = pytest.mark.slow


def test_no_line_is_lost_or_doubled_when_a_client_is_killed() -> None:
    measure(RANKS * 1000, kills=1)


def test_a_lost_a_doubled_and_a_torn_line_are_noticed() -> None:
    for numbers in ([0, 1, 3], [0, 1, 1, 2], [0, 2, 1]):
        seen = Seen()
        for number in numbers:
            seen.see(0, number)
        with pytest.raises(AssertionError):
            seen.check(3)
