"""The requests of a whole cluster's life, recorded by `python -m lab.requests record`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.prerequisites import missing
from tests.e2e.conftest import DIRECT, ROOT, cluster_file, run_file
from tests.evidence import note
from tests.labs import lab_for

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def test_the_requests_of_up_run_and_down_are_recorded(tmp_path: Path) -> None:
    if (lacking := missing()) and not os.environ.get("CI"):
        pytest.skip(f"the lab cannot start here: {lacking[0]}")
    lab, folder = lab_for("rec"), tmp_path / "requests"
    files = {
        "--cluster": cluster_file(tmp_path, "asked", nodes=1, network=DIRECT),
        "--run": run_file(tmp_path, "hello", ["echo hello"], nodes=1),
    }
    options = [word for name, file in files.items() for word in (name, str(file))]
    record = [sys.executable, "-m", "lab.requests", "record", str(folder)]
    done = subprocess.run(
        [*record, "--lab-name", lab.name, *options],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    note(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = [json.loads(file.read_text()) for file in sorted(folder.iterdir())]
    assert done.stdout.endswith(f"\n{len(recorded)} requests in {folder}\n")
    assert (lab.record.exists(), lab.requests.exists()) == (False, False)

    steps = [one["operation"] for one in recorded]
    life = ["GetCallerIdentity", "CreateCapacityReservation", "CreateLaunchTemplate",
            "CancelCapacityReservation", "TerminateInstances", "DeleteVpc"]  # fmt: skip
    assert sorted(life, key=steps.index) == life
    (template,) = [one for one in recorded if one["operation"] == "CreateLaunchTemplate"]
    data = template["parameters"]["LaunchTemplateData"]
    assert "#cloud-config" in data["UserData"]
    assert len(data["NetworkInterfaces"]) == 5
