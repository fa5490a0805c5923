"""Commands of the ladder: how one ends that is interrupted, and what is said of one that fails."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from lab.places import Places
from smoke.workplace import StepFailed, Workplace, uninterrupted


@pytest.fixture
def site(tmp_path: Path) -> Workplace:
    """A lab with a command that runs the shell script which is its last word."""
    command = tmp_path / "gpuctl"
    command.write_text('#!/bin/bash\neval "${@: -1}"\n')
    command.chmod(0o755)
    return Workplace(Places("x"), tmp_path, gpuctl=command)


def test_a_command_ends_by_itself_when_the_ladder_is_terminated(
    site: Workplace, tmp_path: Path
) -> None:
    cleaned = tmp_path / "cleaned"
    script = f"trap 'touch {cleaned}; exit 7' INT; echo begun; while :; do read -rt 1 <> <(:); done"
    with (
        pytest.raises(SystemExit),
        site.running(script, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        raise SystemExit(143)
    assert cleaned.exists()
    assert [one.exit_code for one in site.commands] == [7]


def test_a_command_that_fails_is_named_with_its_last_line(site: Workplace) -> None:
    script = "echo first >&2; echo 'gpuctl: error: no room' >&2; exit 2"
    with pytest.raises(StepFailed) as caught:
        site.read(script)
    assert str(caught.value) == (f"`gpuctl --lab-name x {script}` ended with exit code 2: no room")
    with pytest.raises(StepFailed) as silent:
        site.run("exit 3")
    assert str(silent.value) == "`gpuctl --lab-name x exit 3` ended with exit code 3"
    assert site.run("exit 3", codes=(0, 3)) == 3
    assert [one.exit_code for one in site.commands] == [2, 3, 3]


def test_credentials_of_a_role_are_in_the_environment_of_commands_alone(
    site: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "research")
    shown = "echo ${AWS_PROFILE-none} ${AWS_SESSION_TOKEN-none}"
    assert site.read(shown) == "research none\n"
    site.environment = {"AWS_SESSION_TOKEN": "of-the-role"}
    assert site.read(shown) == "none of-the-role\n"
    assert "of-the-role" not in repr(site)
    assert "AWS_SESSION_TOKEN" not in os.environ


def test_a_removal_ignores_interruptions_and_so_do_its_commands(site: Workplace) -> None:
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        assert site.read("kill -INT $$; kill -TERM $$; echo removed") == "removed\n"
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
