"""What `make aws-smoke` does with an account, done in the lab: two nodes without GPUs."""

import subprocess

import pytest

from tests.e2e.conftest import ROOT, Gpuctl
from tests.e2e.region import what_bills

pytestmark = pytest.mark.lab


def smoke(gpuctl: Gpuctl, answer: str) -> str:
    """Output of the script in the lab, which ended well, having been answered so."""
    done = subprocess.run(
        ["scripts/aws-smoke", *gpuctl.lab.options],
        env=gpuctl.environment,
        cwd=ROOT,
        input=f"{answer}\n",
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_nodes_without_gpus_come_up_run_and_go(gpuctl: Gpuctl) -> None:
    output = smoke(gpuctl, "y")
    assert "2 x c6i.large $0.085" in output
    assert "For all of lifetime.max (1h): $0." in output
    for rank in (0, 1):
        assert f"rank {rank} of 2 on ip-" in output
    assert output.count("reached 10.213.") == 4
    assert what_bills(gpuctl, "smoke") == {}
    kept = [path for path in gpuctl.state.rglob("*") if not path.is_symlink()]
    assert [path for path in kept if path.stat().st_mode & 0o077] == []
    # its runs and what they printed are kept on purpose
    assert [path for path in kept if "smoke" in path.name and "runs" not in path.parts] == []


def test_nothing_is_made_unless_somebody_says_yes(gpuctl: Gpuctl) -> None:
    assert "aws-smoke: nothing was made" in smoke(gpuctl, "n")
    assert what_bills(gpuctl, "smoke") == {}
