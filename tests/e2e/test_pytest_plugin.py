"""pytest's fixtures in another repository: the tests of the page, and a killed pytest."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config.polling import Timeouts, poll
from lab.places import Places
from lab.prerequisites import missing
from tests.docs.pages import blocks
from tests.e2e.conftest import COMMAND, read_until
from tests.evidence import note

pytestmark = [
    pytest.mark.lab,
    pytest.mark.thorough,
    pytest.mark.skipif(bool(missing()) and "CI" not in os.environ, reason="the lab cannot start"),
]

RUN = """\
type: task
name: train
nodes: 2
retry: {attempts: 2, backoff: 1s, on: [exit-code]}
workdir: .
commands: [python3 train.py]
"""
JOB = """\
import os, time

if os.environ["GPUCTL_RESTART_COUNT"] == "0":
    time.sleep(3600)
"""
WAITS = """\
import time


def test_that_is_killed(gpuctl_cluster):
    gpuctl_cluster(nodes=1)
    print("ready", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A team's own repository, with the tests of the page."""
    (example,) = (text for text in blocks("docs/do/pytest.md") if text.language == "python")
    (tmp_path / "test_train.py").write_text(example.text)
    (tmp_path / "train.yaml").write_text(RUN)
    (tmp_path / "train.py").write_text(JOB)
    return tmp_path


def run_pytest(repository: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_example_of_the_page_passes(repository: Path) -> None:
    tests = run_pytest(repository)
    output, _ = tests.communicate(timeout=500)
    note(output)
    assert tests.returncode == 0
    assert " 2 passed in " in output
    assert not Places(f"pytest-{tests.pid}").runtime.exists()


def test_a_killed_pytest_leaves_nothing(repository: Path) -> None:
    (repository / "test_waits.py").write_text(WAITS)
    tests = run_pytest(repository, "-s", "test_waits.py")
    read_until(tests, "ready")
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    lab = Places(f"pytest-{tests.pid}")
    assert poll(lambda: not lab.runtime.exists() or None, Timeouts(120, 0.2))
    left = subprocess.run(
        [COMMAND, *lab.options, "lab", "status", "--leftovers"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert left.stdout == ""
