"""`up` from the plan to the inventory; what makes machines, and makes them ready, is elsewhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import provision.up
from config.progress import silent
from config.target import Target
from infra.fleet import Fleet
from infra.stack.changes import Change, Op, Plan
from infra.stack.installation import Engine
from nodes.identity import cluster_key
from nodes.inventory import Inventory, save
from nodes.openssh import write_hosts
from provision.nodes.launch import FleetLaunch
from provision.setup.nodes_key import NodesKey
from provision.state.store import ClusterStore
from provision.up import FleetPlan, up
from tests.engine.conftest import make_inventory
from tests.infra.region import CREDENTIALS
from tests.provision.test_record import a_record

NODE = "aws:ec2/instance:Instance"
ENGINE = Engine(Path("/no/pulumi"), "3.258.0", "cache")
FLEET = Fleet(vpc_id="v", subnet_id="s", bastion_id="", bastion_address="", nodes=())


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let a launch need neither AWS nor Pulumi; call a function while it is carried out."""
    calls: list[Callable[[], None]] = []

    def carry_out(*_: object) -> Fleet:
        for call in calls:
            call()
        return FLEET

    monkeypatch.setattr(FleetLaunch, "carry_out", carry_out)
    monkeypatch.setattr(provision.up, "find_engine", lambda report: ENGINE)
    monkeypatch.setattr(provision.up, "note_launches", lambda *_: None)
    monkeypatch.setattr(provision.up, "note_ends", lambda _, record, __: record)
    return calls.append


@pytest.mark.parametrize(("op", "stays"), [("create", True), ("update", True), ("replace", False)])
def test_a_run_can_be_stopped_while_nodes_are_added(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    during: Callable[[Callable[[], None]], None],
    op: Op,
    stays: bool,
) -> None:
    """Its commands need the inventory; while nodes are replaced there is none."""
    target = Target("test", "us-east-1", tmp_path, environment=CREDENTIALS)
    ClusterStore(target).write(a_record().now("ready"))
    path = ClusterStore(target).folder("demo") / "inventory.json"
    cluster_key(ClusterStore(target).folder("demo")).touch()
    save(make_inventory(1), path)
    seen: list[bool] = []

    during(lambda: seen.append(path.exists()))
    monkeypatch.setenv("HOME", str(tmp_path))
    hosts = write_hosts(make_inventory(1))
    plan = Plan((Change("same", NODE, "node0"), Change(op, NODE, "node1")))
    up(
        FleetPlan(a_record().resolved, plan, None),
        target,
        silent,
        boot=lambda *_, **__: make_inventory(2),
    )
    assert seen == [stays]
    assert len(ClusterStore(target).inventory("demo").nodes) == 2
    assert "Host demo-node1\n" in hosts.read_text(), "the user's ssh settings follow"


@pytest.mark.usefixtures("during")
def test_the_key_that_a_node_gave_is_not_asked_for_again(tmp_path: Path) -> None:
    """As for `heal`, which has ended machines meanwhile: no node of this inventory answers."""
    target = Target("test", "us-east-1", tmp_path, environment=CREDENTIALS)
    resolved = a_record().resolved
    resolved = resolved.model_copy(update={"nodes_public_key": "ssh-ed25519 A"})
    ClusterStore(target).write(a_record().model_copy(update={"resolved": resolved}).now("ready"))
    given = NodesKey("the private key", "ssh-ed25519 A", is_from_node=True)
    keys: list[object] = []

    def bootstrap(_: object, there: Inventory, key: NodesKey, *__: object, **___: object) -> Any:
        keys.append(key)
        return make_inventory(2)

    plan = Plan((Change("same", NODE, "node0"), Change("create", NODE, "node1")))
    up(FleetPlan(resolved, plan, None), target, silent, given, bootstrap)
    assert keys == [given]
