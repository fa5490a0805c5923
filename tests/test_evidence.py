"""A test that fails names a folder with what there is to look at."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

TESTS = """
import shutil

import pytest
from lab.places import Places
from tests.evidence import LABS, note
from tests.labs import lab_for


@pytest.fixture
def machine():
    lab = Places(lab_for("e2e").name, LABS)
    (lab.machines / "i-0").mkdir(parents=True)
    lab.runtime.mkdir(parents=True)
    (lab.machines / "i-0/console").write_text("x" * 300_000 + "no such device")
    lab.log.write_text("i-0 did not boot")
    yield
    shutil.rmtree(LABS)


def test_of_a_run(tmp_path, machine):
    run = tmp_path / "gpuctl/lab/runs/job-000001"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("node1 was lost")
    note("$ gpuctl run job.yaml\\nran")
    assert FAILS


def test_of_nothing(tmp_path):
    assert FAILS
"""


def suite(folder: Path, fails: bool) -> str:
    """What pytest prints for two such tests."""
    (folder / "test_it.py").write_text(TESTS.replace("FAILS", str(not fails)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.evidence", "-p", "no:cacheprovider"],
        cwd=folder,
        env={
            **os.environ,
            **{"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "COLUMNS": "200"},
            # Two that clean their common folder at once may fail by a warning.
            "PYTEST_DEBUG_TEMPROOT": str(folder),
            "GPUCTL_TEST_LABS": str(folder / "machine"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(fails), done.stdout + done.stderr
    return done.stdout


def test_a_failing_test_leaves_journal_console_log_and_output(tmp_path: Path) -> None:
    output = suite(tmp_path, fails=True)
    folder = tmp_path / "build/test-evidence/test_it.py-test_of_a_run"
    assert re.search(rf"-+ Evidence -+\n{re.escape(str(folder))}\n", output), output
    kept = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    lab = next(name.split("/")[0] for name in kept if name.endswith("daemon.log"))
    assert set(kept) == {
        "commands.txt",
        "gpuctl/lab/runs/job-000001/journal.jsonl",
        f"{lab}/consoles/i-0",
        f"{lab}/daemon.log",
    }
    assert kept["commands.txt"].read_text() == "$ gpuctl run job.yaml\nran"
    assert kept["gpuctl/lab/runs/job-000001/journal.jsonl"].read_text() == "node1 was lost"
    assert kept[f"{lab}/daemon.log"].read_text() == "i-0 did not boot"
    console = kept[f"{lab}/consoles/i-0"].read_text()
    assert console.endswith("no such device")
    assert len(console) == 256 * 1024
    assert "none: no run, no machine, no command" in output


def test_a_test_that_passes_leaves_nothing(tmp_path: Path) -> None:
    assert "Evidence" not in suite(tmp_path, fails=False)
    assert not (tmp_path / "build").exists()
