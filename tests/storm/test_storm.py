"""Small storms: a run is hit at random, ends well, and has made every step of every rank once."""

import re

import pytest

from tests.storm import machines
from tests.storm.__main__ import main
from tests.storm.processes import weather

pytestmark = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [2, 7, 11])
def test_a_run_that_is_hit_at_random_ends_well_with_every_step(seed: int) -> None:
    found = weather(seed, failures=3, ranks=2, cut_s=2.0)
    assert len(found.hits) == 3


def test_storms_in_a_row_are_counted_and_one_that_fails_stops_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def storm(*asked: int) -> None:
        seen.append(asked)
        assert asked[0] != 8, "rank 3 made step 4 twice"

    monkeypatch.setattr(machines, "weather", storm)
    assert main(["--machines", "--seed", "7", "--storms", "3"]) == 1
    assert seen == [(seed, 10, 8, 2) for seed in (7, 8, 9)]
    shown = capsys.readouterr()
    whole = "done after T s, every step of every rank was made once\n"
    assert re.sub(r"\d+ s\b", "T s", shown.out) == (
        f"seed 7\n{whole}seed 8\nseed 8: FAILED after T s\nseed 9\n{whole}2 of 3\n"
    )
    assert "AssertionError: rank 3 made step 4 twice" in shown.err
    assert main(["--machines", "3", "--seed", "9"]) == 0
    assert seen[-1] == (9, 10, 8, 3)
    assert capsys.readouterr().out.endswith("\n1 of 1\n")
