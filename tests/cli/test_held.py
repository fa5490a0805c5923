"""Commands that take something from a cluster first ask its head whether a run is on it."""

import asyncio
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.output import Output
from config.errors import InputError
from config.target import Target
from engine.contract.event import Event
from engine.contract.head_events import RunStarted
from engine.record.run_errors import RunGoesOn
from engine.session import session
from infra.stack.changes import Change, Plan
from provision.down import Teardown
from provision.preflight.replacements import OlderSettings
from provision.state.store import ClusterStore
from provision.up import FleetPlan
from tests.cli.conftest import remember
from tests.engine.session.test_session import (
    INVENTORY,
    LocalConnections,
    connections,  # noqa: F401  a fixture
    job,
)
from tests.nodes.conftest import Site, site  # noqa: F401  a fixture
from tests.provision.test_record import a_record

pytestmark = pytest.mark.slow

NODE = "aws:ec2/instance:Instance"
REPLACES = Plan((Change("replace", NODE, "node0"), Change("create", NODE, "node1")))
ADDS = Plan((Change("same", NODE, "node0"), Change("create", NODE, "node1")))
KEEPS = Plan((Change("same", NODE, "node0"),))


@contextmanager
def a_run(runs: Path) -> Iterator[str]:
    """Until the end of this a run is on the cluster, its client has left: what is said of it."""
    plan = job("sleep 1000")
    times: list[float] = []

    def leave(event: Event) -> None:
        assert isinstance(event, RunStarted)
        times.append(event.time)
        raise BrokenPipeError

    with pytest.raises(RunGoesOn):
        asyncio.run(session.run(plan, INVENTORY, runs, leave))
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(times[0]))
        yield f"run {plan.run_id} has been on cluster demo since {since} UTC"
    finally:
        asyncio.run(session.stop(plan.run_id, INVENTORY, runs))


@pytest.fixture
def ready(connections: LocalConnections, remembered: Target) -> Target:  # noqa: F811
    """The cluster `demo` of two nodes, whose commands run here."""
    remember(INVENTORY, remembered)
    return remembered


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clusters that `down` removed."""
    names: list[str] = []

    def take_down(name: str, *_: object) -> Teardown:
        names.append(name)
        return Teardown(name, (), 60.0, None)

    monkeypatch.setattr("provision.down.down", take_down)
    monkeypatch.setattr("operations.release.find_losses", lambda *_: None)
    monkeypatch.setattr("operations.release.find_ownership", lambda *_: None)  # it asks AWS
    return names


def gpuctl(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=answer)


def test_down_names_the_run_that_it_would_end(ready: Target, removed: list[str]) -> None:
    with a_run(ready.runs) as run:
        refused = gpuctl("down", "demo")
        assert isinstance(refused.exception, InputError)
        assert str(refused.exception) == (
            f"there is no terminal to ask on: {run}; it ends with the cluster. Remove cluster demo"
            " and everything in it?; add --yes if that is what you want"
        )
        assert removed == []
        elsewhere = gpuctl("down", "demo", "--id", "aaaa", "--yes")
        assert (elsewhere.exit_code, removed, elsewhere.stderr) == (0, ["demo"], "")
        done = gpuctl("down", "demo", "--yes")
        assert (done.exit_code, removed) == (0, ["demo", "demo"])
        assert done.stderr == f"gpuctl: warning: {run}; it ends with the cluster\n"


def test_down_without_a_run_asks_as_ever(ready: Target, removed: list[str]) -> None:
    refused = gpuctl("down", "demo")
    assert str(refused.exception) == (
        "there is no terminal to ask on: Remove cluster demo and everything in it?;"
        " add --yes if that is what you want"
    )
    assert (gpuctl("down", "demo", "--yes").stderr, removed) == ("", ["demo"])


def test_a_run_that_this_machine_does_not_know_is_named_too(
    ready: Target, removed: list[str], tmp_path: Path
) -> None:
    with a_run(tmp_path) as run:
        done = gpuctl("down", "demo", "--yes")
    assert done.stderr == (
        f"gpuctl: warning: {run}, started from another machine; it ends with the cluster\n"
    )


@pytest.mark.parametrize("trouble", ["{", None])
def test_a_cluster_that_has_no_head_is_removed_unasked(
    ready: Target, removed: list[str], trouble: str | None
) -> None:
    saved = ClusterStore(ready).folder("demo") / "inventory.json"
    saved.write_text(trouble) if trouble else saved.unlink()
    assert (gpuctl("down", "demo", "--yes").stderr, removed) == ("", ["demo"])


def test_a_head_that_is_silent_does_not_hold_down_up(
    site: Site,  # noqa: F811
    remembered: Target,
    removed: list[str],
) -> None:
    """Its bastion accepts the connection, and then says nothing, as a machine that hangs."""
    there = remember(site.inventory, remembered)
    for name in ("id_ed25519", "known_hosts"):
        (site.inventory.folder / name).rename(there.folder / name)
    site.bastion.process.send_signal(signal.SIGSTOP)
    try:
        done = gpuctl("down", "demo", "--yes")
    finally:
        site.bastion.process.send_signal(signal.SIGCONT)
    assert (done.exit_code, removed) == (0, ["demo"])
    assert done.stderr == (
        "gpuctl: warning: whether a run is on cluster demo is unknown:"
        " node0 (127.0.0.1) did not answer within 8 s\n"
    )


@pytest.fixture
def file(ready: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the cluster, whose `up` is carried out by nobody."""
    monkeypatch.setattr("provision.up.up", lambda *_: INVENTORY)
    path = tmp_path / "demo.yaml"
    path.write_text("{name: demo, nodes: 2, instance_type: p4d.24xlarge}")
    return path


def planned(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    found = FleetPlan(a_record().resolved, plan, None)
    monkeypatch.setattr("provision.up.plan", lambda *_, **__: found)


def test_up_takes_nothing_from_a_run(
    ready: Target, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_run(ready.runs) as run:
        planned(monkeypatch, REPLACES)
        for options in ((), ("--yes",), ("--yes", "--json")):
            refused = gpuctl("up", str(file), *options)
            name = run.split()[1]
            assert isinstance(refused.exception, InputError)
            assert str(refused.exception) == (
                f"{run}, and this plan ends machines; stop the run first"
                f" (`gpuctl stop {name}`) or wait for its end (`gpuctl wait {name}`)"
            )
        for plan in (ADDS, KEEPS):
            planned(monkeypatch, plan)
            assert gpuctl("up", str(file), "--yes").exit_code == 0
    planned(monkeypatch, REPLACES)
    assert gpuctl("up", str(file), "--yes").exit_code == 0, "the run is over"


def test_a_run_that_began_while_the_plan_was_read_is_seen(
    ready: Target, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, REPLACES)
    asked: list[str] = []
    monkeypatch.setattr("operations.rent.check_free", lambda *_: asked.append("head"))
    monkeypatch.setattr(Output, "confirm", lambda out, question: asked.append("person"))
    assert gpuctl("up", str(file)).exit_code == 0
    assert asked == ["head", "person", "head"]
    asked.clear()
    assert gpuctl("up", str(file), "--yes").exit_code == 0
    assert asked == ["head"]


def test_plan_replaces_the_nodes_that_up_would_replace(
    ready: Target, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: object, replace: Sequence[str], **__: object) -> FleetPlan:
        reasons = dict.fromkeys(replace, "--replace names it")
        return FleetPlan(a_record().resolved, REPLACES, None, replaced=reasons)

    monkeypatch.setattr("provision.up.plan", plan)
    shown = gpuctl("plan", str(file), "--replace", "node0", "--replace", "node1").stdout
    assert "\nnode[0-1] are replaced: --replace names it\n" in shown


def test_up_replaces_all_nodes_only_where_somebody_asks_for_it(
    ready: Target, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = OlderSettings("network.cidr changed", may_stay=False)
    nodes = {"node0": moved, "node1": moved}
    found = FleetPlan(a_record().resolved, REPLACES, None, older=nodes)
    monkeypatch.setattr("provision.up.plan", lambda *_, **__: found)
    refused = gpuctl("up", str(file), "--yes")
    assert isinstance(refused.exception, InputError)
    assert refused.exception.message == (
        "node[0-1] of demo cannot stay as they are: network.cidr changed"
    )
    asked = dict.fromkeys(nodes, "--replace names it")
    found = replace(found, replace=tuple(nodes), replaced=asked)
    monkeypatch.setattr("provision.up.plan", lambda *_, **given: found if given["replace"] else 0)
    assert gpuctl("up", str(file), "--yes", "--replace", "all").exit_code == 0
