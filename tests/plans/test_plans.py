"""Every type and every mode: planned as reviewed, accepted by AWS's API as planned, gone after."""

from collections.abc import Callable
from typing import Any

import pytest

from config.target import Target
from tests import golden
from tests.plans import requests
from tests.plans.cases import MODES, QUICK, TYPES, Case
from tests.plans.life import Life


def _of_tier(case: Case) -> Any:
    return case if case.name in QUICK else pytest.param(case, marks=pytest.mark.thorough)


def test_no_type_is_forgotten() -> None:
    assert len(TYPES) == 36
    for cases in (TYPES, MODES):
        folder = cases[0].golden.parent
        assert sorted(folder.iterdir()) == sorted(case.golden for case in cases)


@pytest.mark.engine
@pytest.mark.parametrize("case", list(map(_of_tier, (*TYPES, *MODES))), ids=str)
def test_what_is_planned_is_as_reviewed_and_accepted(
    case: Case, life_of: Callable[[Case], Life]
) -> None:
    life = life_of(case)
    golden.check(case.golden, life.text)
    assert life.made == life.planned
    assert life.changes_after == ()
    assert life.left == []


@pytest.mark.engine
@pytest.mark.parametrize(
    "case", [_of_tier(case) for case in TYPES if case.name in requests.TYPES], ids=str
)
def test_the_requests_of_a_launch_are_as_reviewed(
    case: Case, life_of: Callable[[Case], Life], west: Target
) -> None:
    assert life_of(case).left == []
    sent = requests.launch(west.state / "requests", case.name.replace(".", "-"))
    golden.check(requests.GOLDEN / f"{case.name}.txt", sent)
