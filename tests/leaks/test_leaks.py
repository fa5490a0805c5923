"""Commands that are killed with kill -9 leave nothing: ten points here, more in `make soak`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.stack.installation import Engine
from provision.aws.resources import KINDS
from tests.infra.region import REGION, Worlds, client
from tests.leaks.account import LISTS
from tests.leaks.points import CALLS, point
from tests.leaks.scene import Scene, leaks_of, scene

pytestmark = pytest.mark.slow

SEEDS = (1, 3, 5, 9, 14, 15, 17, 20, 25, 27)
"""Points of each command and each victim; two of them end with `gc`."""


def test_a_seed_is_a_point_and_all_kinds_of_points_come() -> None:
    points = [point(seed) for seed in range(2000)]
    assert points == [point(seed) for seed in range(2000)]
    assert {(one.command, one.shape) for one in points} == set(CALLS)
    assert len({(one.command, one.victim, one.is_done) for one in points}) == 4 * 4 * 2
    assert {one.victim for one in points if one.remedy == "gc"} == {"all"}
    suite = [point(seed) for seed in SEEDS]
    assert {one.command for one in suite} == {"up", "run", "heal", "down"}
    assert {one.victim for one in suite} == {"client", "engine", "provider", "all"}
    assert {one.remedy for one in suite} == {"down", "gc"}
    assert {one.call for one in points if one.command == "heal"} == {1, 2, 3, 4}


def test_a_point_in_words() -> None:
    assert str(point(1)) == (
        "seed 1: down of a shared cluster, kill -9 of client after call 9, then down"
    )


def test_the_account_is_asked_for_every_kind_that_gpuctl_removes() -> None:
    asked = {request for _, request, _, _ in LISTS}
    assert {kind.operation for kind in KINDS.values()} <= asked


@pytest.mark.engine
@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_left(engine: Engine, worlds: Worlds, tmp_path: Path, seed: int) -> None:
    del engine  # it exists
    assert leaks_of(point(seed), worlds, tmp_path) == [], point(seed)


def _scratch(here: Scene, folder: Path) -> str:
    del here
    (folder / "tmp" / "left").touch()
    return "file tmp/left"


def _lock(here: Scene, folder: Path) -> str:
    del folder
    lock = here.target.state / "clusters" / "leaky" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    return "file state/clusters/leaky/lock"


def _volume(here: Scene, folder: Path) -> str:
    del folder
    zone: Any = f"{REGION}a"
    made = client(here.target).create_volume(AvailabilityZone=zone, Size=1)
    return f"describe_volumes {made['VolumeId']}"


def _group(here: Scene, folder: Path) -> str:
    del folder
    client(here.target).create_placement_group(GroupName="left", Strategy="cluster")
    return "describe_placement_groups left"


@pytest.mark.parametrize("plant", [_scratch, _lock, _volume, _group])
def test_a_planted_leak_is_found(
    worlds: Worlds,
    tmp_path: Path,
    plant: Callable[[Scene, Path], str],
) -> None:
    with scene(worlds, tmp_path) as here:
        assert here.leaks() == []
        planted = plant(here, tmp_path)
        assert planted in here.leaks()
