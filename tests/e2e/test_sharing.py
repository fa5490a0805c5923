"""Two people, two state folders, one bucket: a cluster from both sides."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nodes.keys import ensure_key
from tests.e2e.conftest import Gpuctl, cluster_file, read_until, run_file
from tests.e2e.machines import Machines
from tests.e2e.region import ec2
from tests.e2e.ssh_agents import ssh_agent

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


SMALL = {"instance_type": "c6i.large", "lifetime": {"max": "1h"}}


def test_a_colleague_heals_runs_and_removes_what_another_made(
    gpuctl: Gpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = cluster_file(tmp_path, "shared", **SMALL)
    job = run_file(tmp_path, "hello", ["echo from $(hostname)"])
    colleague = replace(gpuctl, home=tmp_path / "home")
    team = ("--backend", "s3://team")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    ensure_key(tmp_path / "key", "ann@laptop")

    gpuctl("--lab", *team, "up", str(file), "--yes")
    (seen,) = colleague.json("--lab", *team, "status", "shared")
    assert seen["state"] == "ready"
    gpuctl("--lab", *team, "grant", "shared", str(tmp_path / "key.pub"))

    with ssh_agent(tmp_path / "agent", tmp_path / "key"):
        before = instances(gpuctl)
        colleague("--lab", *team, "heal", "shared", "node1", "--yes")
        after = instances(colleague)
        assert (after[0] == before[0], after[1] == before[1]) == (True, False)
        moved = colleague.json("--lab", *team, "extend", "shared", "2h")
        assert moved["machines"] == ["node0", "node1", "bastion"]
        (seen,) = gpuctl.json("--lab", *team, "status", "shared")
        assert seen["ends"] == moved["end"]

        gpuctl("--lab", *team, "run", waiting_run(tmp_path), "--cluster", "shared", "--detach")
        with colleague.running("--lab", *team, "attach", "waiting") as attached:
            read_until(attached, "] waits")
            colleague("--lab", *team, "exec", "shared", "--", "touch /tmp/go")
            assert attached.communicate(timeout=60)[0].count("] went") == 2
        assert attached.returncode == 0
        a_colleague_makes_the_bastion_anew_and_not_all_nodes(gpuctl, colleague, file)
        printed = colleague("--lab", *team, "run", str(job), "--cluster", "shared")
    assert printed.count("from ip-10-") == 2
    assert not list((colleague.state / "clusters/shared").glob("*ed25519"))
    runs = gpuctl.json("--lab", *team, "ps")  # other tests' too
    run, earlier = (run for run in runs if run["cluster"] == "shared")
    ended = [f"{one['name']} {one['status']}" for one in (run, earlier)]
    assert ended == ["hello done", "waiting done"]
    # The run is over, and its journal is in the bucket and on the colleague's machine.
    shown = gpuctl("--lab", *team, "attach", run["run_id"])
    assert shown.count("from ip-10-") == 2
    # Each of the two logs in to the new machine with a key of his or her own.
    assert gpuctl("--lab", *team, "exec", "shared", "--", "whoami") == "--- node[0-1]\nroot\n"

    colleague("--lab", *team, "down", "shared", "--yes")
    assert gpuctl.json("--lab", *team, "status") == []
    assert "shared" not in gpuctl.clusters()
    shutil.rmtree(gpuctl.state / "runs" / run["run_id"])
    assert gpuctl("--lab", *team, "logs", run["run_id"]).count("from ip-10-") == 2


def a_colleague_makes_the_bastion_anew_and_not_all_nodes(
    gpuctl: Gpuctl, colleague: Gpuctl, file: Path
) -> None:
    """The host of the bastion fails."""
    team = ("--lab", "--backend", "s3://team")
    refused = colleague(*team, "heal", "shared", "node0", "node1", "--yes", code=2)
    assert refused.endswith(
        "gpuctl: error: new machines of cluster shared cannot be opened from this machine: no node"
        " gives it the nodes' key: it has no other nodes; run this command on the machine that"
        " created the cluster\n"
    )
    machines = Machines(gpuctl, "shared")
    bastion = machines.instance_of("bastion")
    machines.pull_the_plug("bastion")
    waiter = ec2(gpuctl).get_waiter("instance_terminated")
    waiter.wait(InstanceIds=[bastion], WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    made = colleague(*team, "up", str(file), "--yes")
    assert "Plan: 1 to create, 0 to change, 0 to replace, 0 to delete." in made
    kept = colleague(*team, "ssh", "shared", "bastion", "--", "cat .ssh/authorized_keys")
    assert [line.rpartition(" (")[0][-11:] for line in kept.splitlines()] == ["", " ann@laptop"]


def waiting_run(folder: Path) -> str:
    """The file of a run whose jobs wait for a file on their machine."""
    commands = ["echo waits", "until test -e /tmp/go; do sleep 0.2; done", "echo went"]
    return str(run_file(folder, "waiting", commands))


def instances(gpuctl: Gpuctl) -> list[str]:
    """The instances of the cluster's nodes, by rank."""
    inventory = gpuctl.state / "clusters/shared/inventory.json"
    return [node["instance_id"] for node in json.loads(inventory.read_text())["nodes"]]
