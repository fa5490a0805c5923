"""`make gpu-check` on this machine, which has no GPU, as two nodes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.evidence import note
from tests.nodes.conftest import UNPACKED

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

CHECK = """\
import sys
from pathlib import Path
from smoke.gpu_check import check_this_machine
sys.exit(check_this_machine(Path(sys.argv[1])))
"""


def test_this_machine_is_two_nodes_and_is_as_before(tmp_path: Path) -> None:
    libraries = ":".join(map(str, UNPACKED.glob("usr/lib/*-linux-*")))
    path = f"{os.environ['PATH']}:{UNPACKED}/usr/sbin"
    record = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(record)],
        env=os.environ
        | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "PATH": path}
        | ({"LD_LIBRARY_PATH": libraries} if libraries else {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    note(done.stdout + done.stderr)
    steps = {step["title"]: step for step in json.loads(record.read_text())["steps"]}
    assert [steps[title]["verdict"] for title in ("up", "health", "down")] == ["fine"] * 3
    assert "node1" in steps["up"]["output"]
    assert steps["nvidia-smi"]["why"] == "nvidia-smi does not answer"
    assert done.returncode == 0
    left = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert "gpuctl-check" not in left
    assert not Path("/var/lib/gpuctl").exists()
