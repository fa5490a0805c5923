"""Clusters in folders whose names mean something to shells, to ssh and in URLs."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from config.target import Target
from infra.stack.workspace import backend_folder, backend_url
from nodes import dial, openssh
from nodes.inventory import Inventory
from nodes.kept_connections import connect
from nodes.openssh import write_openssh_config
from tests.nodes.conftest import Site

pytestmark = pytest.mark.slow

NAMES = ("a home", "it's", "R&D", "$HOME", "100%", "50%20", "a#b", "what?", 'a"b', "ü|(x)")


@pytest.fixture(params=NAMES)
def moved(request: pytest.FixtureRequest, site: Site, tmp_path: Path) -> Inventory:
    """The cluster in a folder of that name."""
    folder = tmp_path / request.param / "demo"
    folder.parent.mkdir()
    site.inventory.folder.rename(folder)
    return site.inventory.model_copy(update={"folder": folder})


def test_ssh_reaches_a_node_through_the_bastion_from_any_folder(moved: Inventory) -> None:
    words = ["ssh", "-F", str(write_openssh_config(moved)), "node1", "echo here"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("here\n", "")


def test_gpuctl_reaches_a_node_through_the_bastion_from_any_folder(moved: Inventory) -> None:
    async def ask() -> str:
        async with connect(moved) as connections:
            return (await connections.run(moved.nodes[1], "echo here")).stdout

    assert asyncio.run(ask()) == "here\n"
    dial.end(str(moved.folder))


def test_the_users_own_ssh_settings_reach_a_node_from_any_folder(
    moved: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    hosts = openssh.write_hosts(moved)
    config = tmp_path / "config"
    config.write_text(hosts.read_text())
    words = ["ssh", "-F", str(config), "demo-node1", "echo here"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("here\n", "")


@pytest.mark.parametrize("name", NAMES)
def test_pulumis_state_is_in_the_state_folder_of_any_name(name: str) -> None:
    target = Target("aws", "us-east-1", Path("/home") / name)
    assert backend_folder(target) == Path("/home") / name / "pulumi"
    url = backend_url(target)
    assert url.isascii()
    assert set(url.removesuffix("?metadata=skip")) & set(" #?'\"$&;|()") == set()
