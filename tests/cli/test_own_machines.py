"""A cluster of machines that people have, none of which answers: what commands say about it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gpuctl
from cli.main import app
from config.cluster.hosts_file import Host, HostsCluster
from config.errors import GpuctlError, InputError, NodeError
from config.target import Target
from nodes.inventory import OWN_MACHINES
from operations.chosen_target import ChosenTarget
from operations.out_of_service import Outage
from provision.state.record import new_hosts_record
from tests.engine.conftest import make_inventory

RENTS_NOT = "cluster lab7 is of machines that you have, which gpuctl does not rent; "
USERS = "its users are those of the machines: add their keys there as you always do"
TASK = '{"type": "task", "name": "job", "commands": ["true"], "on_stop": "destroy"}'


@pytest.fixture
def lab7(remembered: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of two hosts that is ready, its file and a run file; nobody has AWS."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = ChosenTarget().hosts_store()
    file = HostsCluster(name="lab7", hosts=(Host(address="127.0.0.[1-2]"),))
    store.write_hosts(new_hosts_record(file, "a1b2", datetime.now(UTC)).now("ready"))
    own: dict[str, Any] = {"cluster": "lab7", "instance_type": OWN_MACHINES, "bastion": None}
    store.save_inventory(make_inventory(2).model_copy(update=own))
    monkeypatch.chdir(tmp_path)
    Path("lab7.yaml").write_text("name: lab7\nhosts: [{address: '127.0.0.[1-2]'}]\n")
    Path("task.yaml").write_text(TASK)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "extend lab7 1h",
            f"{RENTS_NOT}it has no end: `gpuctl down lab7` removes what gpuctl wrote there",
        ),
        (
            "drift lab7",
            f"{RENTS_NOT}`gpuctl health lab7` compares its machines with what they were",
        ),
        ("grant lab7", RENTS_NOT + USERS),
        ("grant lab7 ann.pub", RENTS_NOT + USERS),
        ("revoke lab7 ann.pub", RENTS_NOT + USERS),
        (
            "down lab7 --verify --yes",
            "--verify asks AWS what is left, and these machines are yours; leave it out: `down`"
            " says what it removed, and where",
        ),
        (
            "down lab7 --id a1b2 --yes",
            "--id is for rented clusters, and lab7 is not one; leave it out",
        ),
        (
            "gc",
            "gc searches AWS, for which there are no credentials; lab7: machines that you have;"
            " `gpuctl down CLUSTER` removes what gpuctl wrote on those",
        ),
        (
            "plan lab7.yaml",
            "lab7.yaml:2:1: E107 this cluster is of machines that exist: gpuctl rents and prices"
            " nothing for it; `gpuctl up FILE` shows what it writes on them, and asks",
        ),
        (
            "up lab7.yaml --replace node1 --yes",
            "--replace is for clusters that gpuctl rents, and this file has `hosts`; leave it out",
        ),
        (
            "run task.yaml --cluster lab7 --dry-run",
            "on_stop is destroy, and cluster lab7 is of machines that gpuctl does not rent: it does"
            " not end them; set `on_stop: keep`",
        ),
    ],
)
def test_a_command_about_aws_says_what_to_do_instead(lab7: None, words: str, error: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, GpuctlError), done.output
    assert (str(done.exception), done.exception.exit_code) == (error, 2)


def test_cost_names_the_machines_that_have_no_price(lab7: None) -> None:
    done = CliRunner().invoke(app, ["cost"])
    own, rented = done.stdout.splitlines()
    assert own == "Machines that you have cost nothing that gpuctl knows: lab7."
    assert rented.startswith("No rented cluster existed since ")


def test_heal_from_python_takes_nodes_out_and_returns_none_that_does_not_answer(lab7: None) -> None:
    cluster = gpuctl.cluster("lab7")
    outage = cluster.heal(["node0"])
    assert isinstance(outage, Outage)
    assert outage.nodes == {"node0": "named by a person"}
    assert [(node.rank, node.name) for node in cluster.inventory().nodes] == [(0, "node1")]
    with pytest.raises(InputError, match=r"^no node of lab7 would stay in service; mend one, or"):
        cluster.heal(["node1"])
    with pytest.raises(InputError, match=r"^node1 of lab7 is not out of service; node0 is$"):
        cluster.return_nodes(["node1"])
    with pytest.raises(InputError, match=r"^cluster demo is not of `hosts`: gpuctl replaces nodes"):
        gpuctl.cluster("demo").return_nodes(["node1"])
    with pytest.raises(InputError, match=r"lab7/writing.sh cannot be read: No such file or dir"):
        cluster.return_nodes(["node0"])
    (cluster.inventory().folder / "writing.sh").touch()
    with pytest.raises(NodeError, match=r"^node0: 127.0.0.1 cannot be reached: "):
        cluster.return_nodes(["node0"])
