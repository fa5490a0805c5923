"""`gpuctl exec` on real sshd processes: folded answers, exit codes, a node out of reach."""

import json
import shutil
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.target import Target
from nodes import dial
from tests.cli.conftest import remember
from tests.nodes.conftest import Site, site  # noqa: F401  a fixture is found by import

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(site: Site, remembered: Target) -> Iterator[Site]:  # noqa: F811
    known = remember(site.inventory, remembered)
    for name in ("id_ed25519", "known_hosts"):
        shutil.copy2(site.inventory.folder / name, known.folder / name)
    yield site
    dial.end(str(known.folder))


def test_answers_are_folded_and_the_largest_exit_code_is_the_commands(cluster: Site) -> None:
    done = CliRunner().invoke(app, ["exec", "demo", "--", "echo $((6 * 7)); exit 3"])
    assert done.stdout == "--- node[0-1]: exit code 3\n42\n"
    assert done.exit_code == 3


def test_a_node_out_of_reach_is_255_and_named(cluster: Site) -> None:
    cluster.nodes[1].stop()
    done = CliRunner().invoke(app, ["exec", "demo", "--", "echo here; exit 3"])
    assert done.exit_code == 255
    lines = done.stdout.splitlines()
    assert lines[:3] == ["--- node0: exit code 3", "here", "--- node1: exit code 255"]
    assert lines[3].startswith("node1 (127.0.0.1) cannot be reached from the bastion: ")
    assert not lines[4:]


def test_a_node_out_of_reach_is_an_error_in_json(cluster: Site) -> None:
    cluster.nodes[1].stop()
    done = CliRunner().invoke(app, ["exec", "demo", "--json", "--", "echo", "here"])
    assert done.exit_code == 255
    told = json.loads(done.stdout)
    assert told["node0"] == {"exit_status": 0, "stdout": "here\n", "stderr": ""}
    assert told["node1"]["error"].startswith("node1 (127.0.0.1) cannot be reached ")
