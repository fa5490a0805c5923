"""Commands that take something from a cluster first ask its head whether a run is on it."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.output import Output
from config.errors import InputError
from config.target import Target
from engine.contract.event import Event
from engine.contract.head_events import RunStarted
from engine.contract.names import HEALING, HELD, REMOVAL
from engine.record.run_errors import RunGoesOn
from engine.session import head, session
from infra.stack.changes import Change, Plan
from operations import rent
from operations.chosen_target import ChosenTarget
from provision.aws.clients import client
from provision.aws.resources import find_all
from provision.state.store import ClusterStore
from provision.up import FleetPlan
from tests.cli.conftest import complaints, is_removed, put_in_aws, remember
from tests.engine.session.test_session import (
    INVENTORY,
    LocalConnections,
    connections,  # noqa: F401  a fixture
    job,
)
from tests.nodes.conftest import Site, site  # noqa: F401  a fixture
from tests.provision.test_ownership import ME, vpc
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
def rented(ready: Target, aws: Target, without_engine: None) -> Target:
    """The cluster, which AWS knows: its VPC exists."""
    put_in_aws(ready, aws)
    return ready


def gpuctl(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=answer)


def test_down_names_the_run_that_it_would_end(rented: Target, aws: Target) -> None:
    vpc(client(aws, "ec2"), "bbbb", ME)  # another cluster of this name
    with a_run(rented.runs) as run:
        refused = gpuctl("down", "demo")
        assert isinstance(refused.exception, InputError)
        assert str(refused.exception) == (
            f"there is no terminal to ask on: {run}; it ends with the cluster. Remove cluster demo"
            " and everything in it?; add --yes if that is what you want"
        )
        elsewhere = gpuctl("down", "demo", "--id", "bbbb", "--yes")
        assert (elsewhere.exit_code, complaints(elsewhere)) == (0, [])
        assert [one.cluster_id for one in find_all(aws, "demo")] == [""]
        done = gpuctl("down", "demo", "--yes")
        assert done.exit_code == 0, done.output
        assert complaints(done) == [f"gpuctl: warning: {run}; it ends with the cluster"]
        assert find_all(aws, "demo") == []


def test_down_without_a_run_asks_as_ever(rented: Target) -> None:
    refused = gpuctl("down", "demo")
    assert str(refused.exception) == (
        "there is no terminal to ask on: Remove cluster demo and everything in it?;"
        " add --yes if that is what you want"
    )
    assert (complaints(gpuctl("down", "demo", "--yes")), is_removed(rented)) == ([], True)


def test_a_run_that_this_machine_does_not_know_is_named_too(rented: Target, tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        done = gpuctl("down", "demo", "--yes")
    assert complaints(done) == [
        f"gpuctl: warning: {run}, started from another machine; it ends with the cluster"
    ]


def test_nothing_is_removed_while_another_client_makes_nodes_again(rented: Target) -> None:
    with a_run(rented.runs) as run:
        with head.hold(run.split()[1], INVENTORY, HEALING) as answer:
            assert answer == HELD
            refused = gpuctl("down", "demo", "--yes")
        assert str(refused.exception) == (
            "cluster demo is not removed: another gpuctl makes its lost nodes again;"
            " wait for it, or end it where it runs; then repeat `gpuctl down demo`"
        )
        assert not is_removed(rented)
        with head.hold(run.split()[1], INVENTORY, REMOVAL) as answer:
            assert answer == HELD
            assert gpuctl("down", "demo", "--yes").exit_code == 0, "a person decides"
    assert is_removed(rented)


@pytest.mark.parametrize("trouble", ["{", None])
def test_a_cluster_that_has_no_head_is_removed_unasked(rented: Target, trouble: str | None) -> None:
    saved = ClusterStore(rented).folder("demo") / "inventory.json"
    saved.write_text(trouble) if trouble else saved.unlink()
    assert (complaints(gpuctl("down", "demo", "--yes")), is_removed(rented)) == ([], True)


@pytest.mark.usefixtures("aws", "without_engine")
def test_a_head_that_is_silent_does_not_hold_down_up(
    site: Site,  # noqa: F811
    remembered: Target,
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
    assert (done.exit_code, is_removed(remembered)) == (0, True)
    assert complaints(done) == [
        "gpuctl: warning: whether a run is on cluster demo is unknown:"
        " node0 (127.0.0.1) did not answer within 8 s"
    ]


def up(plan: Plan) -> None:
    """Check the plan, as `up` does before it asks a person and again before it begins."""
    fleet = FleetPlan(a_record().resolved, plan, None)
    rent.check(ChosenTarget(region="us-east-1"), fleet, watcher=Output().progress())


def test_up_takes_nothing_from_a_run(ready: Target) -> None:
    with a_run(ready.runs) as run:
        with pytest.raises(InputError) as refused:
            up(REPLACES)
        name = run.split()[1]
        assert str(refused.value) == (
            f"{run}, and this plan ends machines; stop the run first"
            f" (`gpuctl stop {name}`) or wait for its end (`gpuctl wait {name}`)"
        )
        up(ADDS)
        up(KEEPS)
    up(REPLACES)  # the run is over


def test_the_head_is_asked_before_a_person_is(
    ready: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FleetPlan(a_record().resolved, REPLACES, None)
    monkeypatch.setattr("provision.up.plan", lambda *_, **__: fleet)
    file = tmp_path / "demo.yaml"
    file.write_text("{name: demo, nodes: 2, instance_type: p4d.24xlarge}")
    with a_run(ready.runs) as run:
        for options in ((), ("--yes",), ("--yes", "--json")):
            refused = str(gpuctl("up", str(file), *options).exception)
            assert refused.startswith(f"{run}, and this plan ends machines; stop the run first")
