"""Units that gpuctl keeps itself, as on machines without systemd."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from config.polling import Timeouts, poll
from engine.agent.link.units import UNIT_KILLED, Agent, end_command, idle_command, unit_command
from tests.engine.conftest import unpacked_agent

NAME = "gpuctl-run-job-000001-0.service"
SLEEPS = "sleep 1234 & echo $! > child; setsid sleep 1234 & echo $! > other; echo runs; wait"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    monkeypatch.chdir(tmp_path)
    return Agent(sys.executable, str(unpacked_agent() / "__main__.py"))


def begin(agent: Agent, script: str) -> "subprocess.Popen[str]":
    """Start bash with the script as a unit, through a shell of its own session, as ssh does."""
    command = unit_command(NAME, agent, ["bash", "-c", script], ())
    return subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    assert poll(lambda: condition() or None, Timeouts(60, 0.05))


def is_idle(agent: Agent) -> bool:
    asked = subprocess.run(["sh", "-c", idle_command("gpuctl-run-job-000001-", agent)], check=False)
    return asked.returncode == 0


def has_ended(pid: str) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{int(pid)}/status").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", UNIT_KILLED)]
)
def test_a_unit_passes_pipes_and_the_exit_status_through(
    script: str, status: int, agent: Agent
) -> None:
    process = begin(agent, f"read line; echo got $line; {script}")
    output, _ = process.communicate("a line\n", timeout=60)
    assert (output, process.returncode) == ("got a line\n", status)
    assert is_idle(agent)


def test_everything_that_a_unit_has_started_ends_with_its_main_process(agent: Agent) -> None:
    output, _ = begin(agent, SLEEPS.replace("wait", "exit 0")).communicate(timeout=60)
    assert output == "runs\n"
    assert has_ended(Path("child").read_text())
    assert has_ended(Path("other").read_text())


def test_a_unit_outlives_its_login_and_is_ended_by_name(agent: Agent) -> None:
    with begin(agent, SLEEPS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        os.killpg(process.pid, signal.SIGKILL)
    assert not is_idle(agent)
    again = begin(agent, "echo a second one")
    assert again.communicate(timeout=60)[0] == ""
    assert again.returncode == 1
    os.kill(int(Path("other").read_text()), signal.SIGSTOP)
    subprocess.run(["sh", "-c", end_command(NAME, agent)], check=True, timeout=60)
    assert is_idle(agent)
    assert has_ended(Path("child").read_text())
    assert has_ended(Path("other").read_text())


SUPERVISOR = """\
echo $$ >> pids
[ ! -e final ] || exit 4
trap 'echo orderly > end; exit 0' TERM
sleep 1234 & echo $! > helper
: > listens
wait
"""
START = """\
import sys
from pathlib import Path
from engine.agent.link.units import Restart, start_until
words = ["bash", "-c", sys.argv[1]]
sys.exit(start_until(Path("listens"), "gpuctl-run-job-000001.service", words, Restart((4,), 45)))
"""


def start(script: str = SUPERVISOR) -> int:
    return subprocess.run(
        [sys.executable, "-c", START, script],
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    ).returncode


def pids() -> list[str]:
    return Path("pids").read_text().split()


def test_a_supervisor_that_is_killed_is_started_again_and_ends_in_order(agent: Agent) -> None:
    assert start() == 0
    os.kill(int(pids()[0]), signal.SIGKILL)
    wait_until(lambda: len(pids()) == 2)
    subprocess.run(
        ["sh", "-c", end_command("gpuctl-run-job-000001.service", agent)], check=True, timeout=60
    )
    assert Path("end").read_text() == "orderly\n"
    assert has_ended(Path("helper").read_text())
    assert len(pids()) == 2


def test_a_supervisor_is_not_started_again_after_a_final_status(agent: Agent) -> None:
    Path("final").touch()
    assert start() == 4
    assert len(pids()) == 1
    assert start(shlex.join(["touch", "listens"])) == 0
    wait_until(lambda: is_idle(agent))
