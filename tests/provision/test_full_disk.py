"""A disk of this machine that is full: `up` says what bills, and `down` finds it afterwards."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import GpuctlError, StateError
from config.progress import silent
from config.target import Target
from infra.stack.installation import Engine
from nodes.inventory import Inventory
from provision import up as life
from provision.aws.resources import find_all
from provision.down import down
from provision.state.store import ClusterStore
from tests.infra.region import Region
from tests.provision.unbooted import nothing_boots
from tests.small_disks import fill, small_disk

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.engine,
    pytest.mark.lab,
    # Coroutines of the SDK are left where its program is broken off; collected, they ask an engine.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

FULL = "no space left on device"
WHAT_BILLS = "make room on that disk; `gpuctl status` shows what exists and bills"
DEMO = Cluster.model_validate({"name": "demo", "nodes": 1, "instance_type": "p4d.24xlarge"})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB of its own."""
    with small_disk(tmp_path / "disk", "4m") as place:
        yield place


@pytest.fixture
def target(here: Region, engine: Engine, disk: Path) -> Iterator[Target]:
    """A region without machines; what gpuctl remembers of it is on that disk."""
    del engine  # it exists
    yield replace(here.target, state=disk / "state")
    gc.collect()  # here, and not in whichever test comes next


def assert_down_leaves_nothing(target: Target) -> None:
    down("demo", target, silent)
    assert find_all(target, "demo") == []


@pytest.mark.parametrize("kib", [0, 32])
def test_a_plan_without_room_costs_nothing(target: Target, disk: Path, kib: int) -> None:
    fill(disk, kib << 10)
    with pytest.raises(GpuctlError) as refused:
        life.plan(DEMO, target, silent)
    assert FULL in str(refused.value).lower()
    assert WHAT_BILLS in str(refused.value)
    assert find_all(target, "demo") == []


def test_nothing_is_made_where_the_record_has_no_room(target: Target, disk: Path) -> None:
    plan = life.plan(DEMO, target, silent)
    fill(disk, 0)
    with pytest.raises(StateError) as refused:
        life.up(plan, target, silent, boot=nothing_boots)
    assert str(refused.value).endswith(f" cannot be written: No space left on device; {WHAT_BILLS}")
    assert find_all(target, "demo") == []


@pytest.mark.parametrize("kib", [48, 64])
def test_what_was_begun_without_room_is_given_back_or_found(
    target: Target, disk: Path, kib: int
) -> None:
    plan = life.plan(DEMO, target, silent)
    others = fill(disk, kib << 10)
    with pytest.raises(GpuctlError) as refused:
        life.up(plan, target, silent, boot=nothing_boots)
    assert FULL in str(refused.value).lower()
    assert WHAT_BILLS in str(refused.value)
    left = find_all(target, "demo")
    # Neither an instance nor a claim on capacity: nothing that bills.
    assert {one.kind for one in left} <= {"placement group"}
    others.unlink()
    # How far the Pulumi engine comes before the disk is full depends on the machine's load.
    if str(refused.value).endswith("\nnothing of it is left"):
        assert left == []
        assert ClusterStore(target).records() == ()
        return
    assert str(refused.value).endswith(
        "\nwhat exists is kept for inspection; `gpuctl down demo` removes it"
    )
    assert_down_leaves_nothing(target)


def test_a_cluster_whose_end_cannot_be_written_is_found_by_down(target: Target, disk: Path) -> None:
    filled: list[Path] = []

    def fill_then_ready(_: object, inventory: Inventory, *__: object, **___: object) -> Inventory:
        filled.append(fill(disk, 0))
        return inventory

    with pytest.raises(StateError) as refused:
        life.up(life.plan(DEMO, target, silent), target, silent, boot=fill_then_ready)
    assert "inventory.json cannot be written: No space left on device; make room" in str(
        refused.value
    )
    # The disk is still full: what bills is removed all the same.
    gone = down("demo", target, silent)
    assert gone.warnings[0].startswith(f"{target.state} cannot be written: No space left on device")
    assert find_all(target, "demo") == []
    assert ClusterStore(target).records() == ()
