"""What this machine remembers, for commands that are called in the test's own process."""

from pathlib import Path

import pytest
from typer.testing import Result

from config.target import Target
from nodes.inventory import Inventory, save
from provision.aws.clients import client
from provision.state.store import ClusterStore
from tests.provision.test_record import a_record
from tests.provision.test_sweep import tagged


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No finding before a run: what these tests call a node has no GPUs."""

    async def found(*_: object) -> tuple[()]:
        return ()

    monkeypatch.setattr("operations.prerun_health.short_check", found)


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target whose state folder is the command's, with nothing in it."""
    home = tmp_path / "home"
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return Target("aws", "us-east-1", home / "gpuctl" / "aws")


def remember(inventory: Inventory, target: Target) -> Inventory:
    """Write the record of a cluster that is ready; return its inventory as commands read it."""
    ClusterStore(target).write(a_record(inventory.cluster).now("ready"))
    folder = ClusterStore(target).folder(inventory.cluster)
    known = inventory.model_copy(update={"folder": folder})
    save(known, folder / "inventory.json")
    return known


def put_in_aws(target: Target, aws: Target, account: str = "123456789012") -> None:
    """Have AWS know the cluster that `remember` wrote: it has a VPC."""
    known = ClusterStore(target).known_record("demo")
    ClusterStore(target).write(known.model_copy(update={"account": account}))
    ec2 = client(aws, "ec2")
    ec2.create_vpc(CidrBlock="10.213.0.0/16", TagSpecifications=tagged("vpc", "demo"))


def is_removed(target: Target) -> bool:
    return ClusterStore(target).record("demo") is None


def complaints(done: Result) -> list[str]:
    """What it prints on stderr, but for the engine that is not installed."""
    return [line for line in done.stderr.splitlines() if "found by its tags" not in line]
