"""`gpuctl queue`, and the places that `gpuctl ps` shows, for what a head answers."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import InputError
from config.target import Target
from engine.contract.codec import from_json
from engine.contract.head_events import RunQueued
from engine.plan.launch_plan import launch_plan
from engine.record.history import History
from engine.session.cluster_runs import Holder
from nodes.inventory import Inventory
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory, make_run

SINCE = datetime(2026, 11, 23, 5, 20, 11, tzinfo=UTC)
BOTH = ("node0", "node1")


def on_the_cluster(*runs: tuple[str, str]) -> tuple[Holder, ...]:
    return tuple(Holder(run_id=i, state=s, nodes=BOTH, since=SINCE) for i, s in runs)  # type: ignore[arg-type]


@pytest.fixture
def head(remembered: Target, monkeypatch: pytest.MonkeyPatch) -> list[Holder]:
    """The runs that the head of `demo` names; the history has a and b, which may wait."""
    remember(make_inventory(2), remembered)
    with History(remembered.runs) as history:
        for name in "ab":
            plan = launch_plan(make_run(name=name * 3), make_inventory(2), f"{name * 3}-000001")
            history.begin(replace(plan, queue=True))
    answer: list[Holder] = []

    async def find(inventory: Inventory) -> tuple[Holder, ...]:
        return tuple(answer)

    monkeypatch.setattr("engine.session.cluster_runs.find_holders", find)
    monkeypatch.setattr("operations.cluster_occupancy.find_holders", find)
    return answer


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_the_queue_of_a_cluster(head: list[Holder]) -> None:
    assert gpuctl("queue", "demo").stdout == "No run is on cluster demo.\n"
    head += on_the_cluster(
        ("ccc-000001", "waiting"), ("aaa-000001", "started"), ("bbb-000001", "waiting")
    )
    assert [line.split() for line in gpuctl("queue", "demo").stdout.splitlines()] == [
        ["PLACE", "RUN", "STATE", "NODES", "SINCE"],
        ["aaa-000001", "started", "node[0-1]", "2026-11-23", "05:20:11"],
        ["1", "ccc-000001", "waiting", "node[0-1]", "2026-11-23", "05:20:11"],
        ["2", "bbb-000001", "waiting", "node[0-1]", "2026-11-23", "05:20:11"],
    ]
    shown = json.loads(gpuctl("queue", "show", "demo", "--json").stdout)
    assert [one["place"] for one in shown] == [None, 1, 2]


def test_ps_shows_the_place_of_a_run_that_waits(head: list[Holder]) -> None:
    head += on_the_cluster(
        ("aaa-000001", "started"), ("ccc-000001", "waiting"), ("bbb-000001", "waiting")
    )
    shown = {
        run["name"]: (run["status"], run["place"])
        for run in json.loads(gpuctl("ps", "--json").stdout)
    }
    assert shown == {"aaa": ("running", None), "bbb": ("queued", 2)}
    (line,) = (line for line in gpuctl("ps").stdout.splitlines() if "bbb" in line)
    assert line.split()[3:5] == ["queued", "2"]


@pytest.mark.parametrize("place", ["last", "0", "-1"])
def test_a_place_is_first_or_a_number(head: list[Holder], place: str) -> None:
    refused = gpuctl("queue", "move", "aaa", "--", place)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == f"PLACE is '{place}'; write `first`, or a number from 1"


@pytest.mark.parametrize("words", [("move", "aaa", "first"), ("drop", "aaa")])
def test_a_run_that_does_not_wait_stays_as_it_is(
    head: list[Holder], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    async def refuse(*_: object) -> bool:
        return False

    monkeypatch.setattr("engine.session.cluster_runs.move_run", refuse)
    monkeypatch.setattr("engine.session.cluster_runs.drop_run", refuse)
    refused = gpuctl("queue", *words)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        "run aaa-000001 does not wait in a queue; `gpuctl ps` shows its status, `gpuctl stop"
        " aaa-000001` ends it if it runs"
    )


def test_a_run_of_another_machine_can_be_moved(
    head: list[Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = {"run_id": "zzz-000001", "name": "zzz", "cluster": "demo", "on_stop": "keep"}
    waits = from_json(
        RunQueued, {**begin, "time": 1.0, "nodes": [], "place": 2, "ahead": ["aaa-000001"]}
    )
    moved: list[tuple[str, int]] = []

    async def find(*_: object) -> RunQueued:
        return waits

    async def move(run_id: str, _: Inventory, place: int) -> bool:
        moved.append((run_id, place))
        return True

    monkeypatch.setattr("engine.session.head.find_run", find)
    monkeypatch.setattr("engine.session.cluster_runs.move_run", move)
    assert gpuctl("queue", "move", "zzz", "first").exit_code == 0
    assert moved == [("zzz-000001", 1)]
