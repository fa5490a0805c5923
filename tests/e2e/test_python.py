"""The main job as a Python program: what `with` rented is gone afterwards, whatever happens."""

from pathlib import Path

import pytest

import gpuctl as api
from tests.e2e.conftest import DIRECT, ROOT, Gpuctl, cluster_file

pytestmark = pytest.mark.lab


def test_a_program_rents_runs_and_gives_back(
    gpuctl: Gpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(gpuctl.home))
    file, job = cluster_file(tmp_path, "api", network=DIRECT), ROOT / "stacks/nccl-tests.yaml"
    with pytest.raises(KeyboardInterrupt), api.up(file, lab=gpuctl.lab.name) as cluster:
        assert list(cluster.exec("true")) == ["node0", "node1"]
        run = cluster.run(job)
        result = run.wait("10m")
        assert (result.status, result.exit_code) == ("done", 0)
        assert len(run.results().tables) == 2
        raise KeyboardInterrupt
    assert api.clusters(lab=gpuctl.lab.name) == ()
    assert run.results().record.exit_code == 0  # kept on this machine
