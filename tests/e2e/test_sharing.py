"""Two people, two state folders, one bucket: a cluster from both sides."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nodes.keys import ensure_key
from tests.e2e.conftest import Gpuctl
from tests.e2e.ssh_agents import ssh_agent

pytestmark = pytest.mark.lab

CLUSTER = """\
name: shared
nodes: 2
instance_type: c6i.large
lifetime: {max: 1h}
network: {access: elastic-ip}
"""
RUN = "type: task\nname: hello\nnodes: 2\ncommands: [echo from $(hostname)]\n"


def test_a_colleague_heals_runs_and_removes_what_another_made(
    gpuctl: Gpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, job = tmp_path / "cluster.yaml", tmp_path / "job.yaml"
    file.write_text(CLUSTER)
    job.write_text(RUN)
    colleague = replace(gpuctl, home=tmp_path / "home")
    team = ("--backend", "s3://team")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    ensure_key(tmp_path / "key", "ann@laptop")

    gpuctl("--lab", *team, "up", str(file), "--yes")
    (seen,) = colleague.json("--lab", *team, "status")
    assert (seen["name"], seen["state"]) == ("shared", "ready")
    gpuctl("--lab", *team, "grant", "shared", str(tmp_path / "key.pub"))

    with ssh_agent(tmp_path / "agent", tmp_path / "key"):
        before = instances(gpuctl)
        colleague("--lab", *team, "heal", "shared", "node1", "--yes")
        after = instances(colleague)
        assert after[0] == before[0]
        assert after[1] != before[1]
        printed = colleague("--lab", *team, "run", str(job), "--cluster", "shared")
    assert printed.count("from ip-10-") == 2
    assert not list((colleague.state / "clusters/shared").glob("*ed25519"))
    runs = gpuctl.json("--lab", *team, "ps")  # other tests' too
    (run,) = [run for run in runs if run["cluster"] == "shared"]
    assert (run["name"], run["status"]) == ("hello", "done")
    # The run is over, and its journal is on the cluster and on the colleague's machine alone.
    shown = gpuctl("--lab", *team, "attach", run["run_id"])
    assert shown.count("from ip-10-") == 2
    shutil.rmtree(gpuctl.state / "runs" / run["run_id"])
    assert "from ip-10-" in gpuctl("--lab", *team, "logs", run["run_id"])
    # Each of the two logs in to the new machine with a key of his or her own.
    assert gpuctl("--lab", *team, "exec", "shared", "--", "whoami") == "--- node[0-1]\nroot\n"

    colleague("--lab", *team, "down", "shared", "--yes")
    assert gpuctl.json("--lab", *team, "status") == []
    assert "shared" not in gpuctl.clusters()


def instances(gpuctl: Gpuctl) -> list[str]:
    """The instances of the cluster's nodes, by rank."""
    inventory = gpuctl.state / "clusters/shared/inventory.json"
    return [node["instance_id"] for node in json.loads(inventory.read_text())["nodes"]]
