"""What this machine remembers, for commands that are called in the test's own process."""

from pathlib import Path

import pytest

from config.target import Target
from nodes.inventory import Inventory, save
from provision.state.store import ClusterStore
from tests.provision.test_record import a_record


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
