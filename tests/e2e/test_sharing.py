"""Two people, two state folders, one bucket: a cluster of one machine from both sides."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl

pytestmark = pytest.mark.lab

CLUSTER = """\
name: shared
nodes: 1
instance_type: c6i.large
lifetime: {max: 1h}
network: {access: elastic-ip}
"""
RUN = "type: task\nname: hello\nnodes: 1\ncommands: [echo from $(hostname)]\n"


def test_a_colleague_runs_and_removes_what_another_made(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file, job = tmp_path / "cluster.yaml", tmp_path / "job.yaml"
    file.write_text(CLUSTER)
    job.write_text(RUN)
    colleague = replace(gpuctl, home=tmp_path / "home")
    team = ("--backend", "s3://team")

    gpuctl("--lab", *team, "up", str(file), "--yes")
    (seen,) = colleague.json("--lab", *team, "status")
    assert (seen["name"], seen["state"]) == ("shared", "ready")

    place = "clusters/shared/id_ed25519"
    assert not (colleague.state / place).exists()
    shutil.copy(gpuctl.state / place, colleague.state / place)  # as colleagues who trust each other
    assert "from ip-10-" in colleague("--lab", *team, "run", str(job), "--cluster", "shared")
    runs = gpuctl.json("--lab", *team, "ps")  # other tests' too
    (run,) = [run for run in runs if run["cluster"] == "shared"]
    assert (run["name"], run["status"]) == ("hello", "done")
    assert "from ip-10-" in gpuctl("--lab", *team, "logs", run["run_id"])

    colleague("--lab", *team, "down", "shared", "--yes")
    assert gpuctl.json("--lab", *team, "status") == []
    assert "shared" not in gpuctl.clusters()
