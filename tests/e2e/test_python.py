"""The main job as a Python program: what `with` rented is gone afterwards, whatever happens."""

import asyncio
from pathlib import Path

import pytest

import gpuctl as api
from tests.docs.pages import blocks
from tests.e2e.conftest import DIRECT, ROOT, Gpuctl, cluster_file

pytestmark = pytest.mark.lab


@pytest.fixture(autouse=True)
def _state(gpuctl: Gpuctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the state folder of the commands that the other tests start."""
    monkeypatch.setenv("XDG_STATE_HOME", str(gpuctl.home))


def test_a_program_rents_runs_and_gives_back(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "api", network=DIRECT)
    with pytest.raises(KeyboardInterrupt), api.up(file, lab=gpuctl.lab.name) as cluster:
        assert list(cluster.exec("true")) == ["node0", "node1"]
        run = cluster.run(ROOT / "stacks/nccl-tests.yaml")
        result = run.wait("10m")
        assert (result.status, result.exit_code) == ("done", 0)
        assert len(run.results().tables) == 2
        raise KeyboardInterrupt
    assert api.clusters(lab=gpuctl.lab.name) == ()
    assert run.results().record.exit_code == 0  # kept on this machine


def test_a_new_cluster_that_does_not_become_ready_is_removed(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    file = cluster_file(tmp_path, "broken", nodes=1, network=DIRECT, setup={"commands": ["exit 7"]})
    with pytest.raises(api.NodeError) as caught:
        api.up(file, lab=gpuctl.lab.name, no_lease=True)
    assert caught.value.__notes__ == ["cluster broken has been removed"]
    assert api.clusters(lab=gpuctl.lab.name) == ()


def test_the_first_example_of_the_page_works_in_a_notebook(
    gpuctl: Gpuctl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster_file(tmp_path, "cluster", network=DIRECT)
    (tmp_path / "nccl-tests.yaml").write_text((ROOT / "stacks/nccl-tests.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    example = next(
        block for block in blocks("docs/look-up/python.md") if block.language == "python"
    )
    code = example.text.replace("lab=True", f"lab={gpuctl.lab.name!r}")

    async def cell() -> None:
        """Execute the code as a notebook does: in a thread that has an event loop."""
        exec(compile(code, example.name, "exec"), {})

    asyncio.run(cell())
    assert capsys.readouterr().out.startswith("done 0 ")
    assert api.clusters(lab=gpuctl.lab.name) == ()
