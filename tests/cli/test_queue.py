"""`gpuctl queue`, and the places that `gpuctl ps` shows, for what a head answers."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from config.errors import InputError
from config.target import Target
from engine.agent.journal.journal_file import JOURNAL
from engine.contract.codec import from_json
from engine.contract.event import to_line
from engine.contract.head_events import RunQueued
from engine.contract.verdict import REFUSED
from engine.plan.launch_plan import launch_plan
from engine.record.history import History
from engine.session.cluster_runs import Holder
from nodes.answers import Completed
from nodes.inventory import Node
from tests.cli.conftest import remember
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory, make_run
from tests.terminals import lines_on_terminal

SINCE = datetime(2026, 11, 23, 5, 20, 11, tzinfo=UTC)
BOTH = ("node0", "node1")
BEGIN = {"cluster": "demo", "on_stop": "keep"}
CHANGE = re.compile(r"agent\.pyz ((?:move|drop) .*)")


def on_the_cluster(*runs: tuple[str, str]) -> tuple[Holder, ...]:
    return tuple(
        Holder(run_id=i, state=s, nodes=BOTH, since=SINCE, owner="ann@desk")  # type: ignore[arg-type]
        for i, s in runs
    )


class Head(WithoutSsh):
    """The head of `demo`: its runs, the first events of others, and the changes of its queue."""

    def __init__(self) -> None:
        self.runs: list[Holder] = []
        self.journal = ""
        self.may_change = True
        self.changes: list[str] = []

    async def run(self, _: Node, command: str, **__: object) -> Completed:
        if JOURNAL in command:
            return Completed(0, self.journal, "")
        if CHANGE.search(command):
            self.changes += CHANGE.findall(command)
            return Completed(0 if self.may_change else REFUSED, "", "")
        return Completed(0, "".join(map(self._lines, self.runs)), "")

    def _lines(self, run: Holder) -> str:
        assert run.since is not None
        began = {
            **BEGIN,
            "owner": run.owner,
            "run_id": run.run_id,
            "name": "x",
            "time": run.since.timestamp(),
        }
        event = from_json(RunQueued, {**began, "nodes": [], "place": 1, "ahead": []})
        names = ",".join(run.nodes)
        return f"{run.run_id} {run.state} {names}\n{to_line(event)}\n"


@pytest.fixture
def head(remembered: Target, reach_nodes: Callable[[Connect], None]) -> Head:
    """The head of `demo`; the history has a and b, which may wait."""
    remember(make_inventory(2), remembered)
    with History(remembered.runs) as history:
        for name in "ab":
            plan = launch_plan(make_run(name=name * 3), make_inventory(2), f"{name * 3}-000001")
            history.begin(replace(plan, queue=True))
    head = Head()
    reach_nodes(lambda _: head)
    return head


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_the_queue_of_a_cluster(head: Head) -> None:
    assert gpuctl("queue", "demo").stdout == "No run is on cluster demo.\n"
    head.runs += on_the_cluster(
        ("ccc-000001", "waiting"), ("aaa-000001", "started"), ("bbb-000001", "waiting")
    )
    assert [line.split() for line in gpuctl("queue", "demo").stdout.splitlines()] == [
        ["PLACE", "RUN", "STATE", "NODES", "SINCE", "OWNER"],
        ["aaa-000001", "started", "node[0-1]", "2026-11-23", "05:20:11", "ann@desk"],
        ["1", "ccc-000001", "waiting", "node[0-1]", "2026-11-23", "05:20:11", "ann@desk"],
        ["2", "bbb-000001", "waiting", "node[0-1]", "2026-11-23", "05:20:11", "ann@desk"],
    ]
    shown = json.loads(gpuctl("queue", "show", "demo", "--json").stdout)
    assert [one["place"] for one in shown] == [None, 1, 2]


def test_a_queue_on_a_narrow_terminal_lacks_columns_in_its_order(head: Head) -> None:
    name = "llama-pretrain-of-the-night-4f2a1c"
    head.runs += on_the_cluster((name, "waiting"))
    pipe = gpuctl("queue", "demo").stdout.splitlines()
    assert [len(pipe), pipe[0].split()] == [2, ["PLACE", "RUN", "STATE", "NODES", "SINCE", "OWNER"]]
    assert lines_on_terminal("queue", "demo") == [
        f"PLACE  {'RUN':<34}  STATE    NODES      OWNER",
        f"    1  {name}  waiting  node[0-1]  ann@desk",
    ]
    assert lines_on_terminal("queue", "demo", columns=70)[1] == f"    1  {name}  waiting  ann@desk"
    assert lines_on_terminal("queue", "demo", columns=55)[1] == f"    1  {name}  waiting"
    assert lines_on_terminal("queue", "demo", columns=44)[1] == f"{name}  waiting"


def test_ps_shows_the_place_of_a_run_that_waits(head: Head) -> None:
    head.runs += on_the_cluster(
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
def test_a_place_is_first_or_a_number(head: Head, place: str) -> None:
    refused = gpuctl("queue", "move", "aaa", "--", place)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == f"PLACE is '{place}'; write `first`, or a number from 1"


@pytest.mark.parametrize("words", [("move", "aaa", "first"), ("drop", "aaa")])
def test_a_run_that_does_not_wait_stays_as_it_is(head: Head, words: tuple[str, ...]) -> None:
    head.may_change = False
    refused = gpuctl("queue", *words)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        "run aaa-000001 does not wait in a queue; `gpuctl ps` shows its status, `gpuctl stop"
        " aaa-000001` ends it if it runs"
    )


def test_a_run_of_another_machine_can_be_moved(
    head: Head,
) -> None:
    begin = {**BEGIN, "run_id": "zzz-000001", "name": "zzz"}
    waits = from_json(
        RunQueued, {**begin, "time": 1.0, "nodes": [], "place": 2, "ahead": ["aaa-000001"]}
    )
    head.journal = to_line(waits)
    assert gpuctl("queue", "move", "zzz", "first").exit_code == 0
    assert head.changes == ["move /var/lib/gpuctl/runs/zzz-000001 1"]
