"""Commands of a user whose home cannot be written or read, and of one with unusual variables."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import StateError
from config.folders import cache_home, config_home, home, state_home
from engine.record.history import History
from tests.cli.test_command import COMMAND, ROOT
from tests.engine.conftest import make_plan

pytestmark = pytest.mark.slow

UNPRIVILEGED = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    if os.geteuid() == 0
    else []
)
"""What lets root meet the same refusals as any other user."""


def as_user(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.run(
        [*UNPRIVILEGED, str(COMMAND), *words],
        env={**kept, **environment}, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Path]:
    """A home that its user can read, and not write."""
    place = tmp_path / "sealed"
    place.mkdir(mode=0o500)
    yield place
    place.chmod(0o700)


@pytest.fixture
def dark(tmp_path: Path) -> Iterator[Path]:
    """A home that its user can neither read nor write."""
    place = tmp_path / "dark"
    place.mkdir(mode=0o000)
    yield place
    place.chmod(0o700)


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["ps"], 0, "No run yet.\n"),
        (["ps", "--json"], 0, "[]\n"),
        (["logs", "job"], 2, "gpuctl: error: there is no run job; no run was started yet\n"),
        (["cost"], 0, "No cluster existed since "),
        (["--lab=t-down", "status"], 0, "No cluster exists.\n"),
    ],
)
def test_a_reading_command_needs_no_home_that_it_can_write(
    command: list[str], code: int, text: str, sealed: Path
) -> None:
    done = as_user(sealed, *command)
    assert (done.returncode, (done.stdout + done.stderr)[: len(text)]) == (code, text)
    assert os.listdir(sealed) == []  # noqa: PTH208


def test_runs_are_listed_from_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    runs = tmp_path / "gpuctl" / "aws" / "runs"
    with History(runs) as history:
        history.begin(make_plan())
    for path in (runs, runs / "runs.sqlite"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    done = as_user(tmp_path, "logs", "nothing", XDG_STATE_HOME=str(tmp_path))
    runs.chmod(0o700)
    assert done.stderr == (
        "gpuctl: error: there is no run nothing; the newest are: " + make_plan().run_id + "\n"
    )


def test_a_history_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    runs = tmp_path / "gpuctl" / "aws" / "runs"
    with History(runs):
        pass
    database = runs / "runs.sqlite"
    database.chmod(0o000)
    done = as_user(tmp_path, "ps", XDG_STATE_HOME=str(tmp_path))
    database.chmod(0o600)
    assert done.returncode == 1
    assert done.stderr == (
        f"gpuctl: error: {database} cannot be read: Permission denied ({database} is {USER}'s,"
        f" mode 0); let {USER} read {database}, or set XDG_STATE_HOME to a folder that you can"
        " read\n"
    )


USER = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("command", [["ps"], ["config"], ["exec", "demo", "true"], ["doctor"]])
def test_settings_that_cannot_be_read_are_an_error_with_the_variable(
    command: list[str], dark: Path
) -> None:
    done = as_user(dark, *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"gpuctl: error: {dark}/.config/gpuctl/config.yaml cannot be read: Permission denied"
        f" ({dark} is {USER}'s, mode 0); let {USER} read {dark},"
        " or set XDG_CONFIG_HOME to a folder that you can read\n"
    )


def test_another_state_folder_that_is_refused_is_named_with_its_own_variable(
    sealed: Path, tmp_path: Path
) -> None:
    done = as_user(tmp_path, "ps", GPUCTL_STATE=str(sealed / "state"))
    assert (done.returncode, done.stdout) == (0, "No run yet.\n")


REFUSALS = """
from config.errors import StateError
from config.files import write_new, write_whole
from config.folders import cache_home, config_home, state_home
from engine.record.history import History
from tests.engine.conftest import make_plan

def begin_run() -> None:
    with History(state_home() / "aws" / "runs") as history:
        history.begin(make_plan())

for work in (
    lambda: write_whole(state_home() / "file", ""),
    lambda: write_whole(cache_home() / "file", ""),
    lambda: write_new(config_home() / "file", ""),
    begin_run,
):
    try:
        work()
    except StateError as error:
        print(error)
"""


def test_what_must_be_written_names_folder_permission_and_variable(sealed: Path) -> None:
    done = subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-c", REFUSALS],
        cwd=ROOT, env={"HOME": str(sealed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    refused = (
        (f"{sealed}/.local/state/gpuctl/file", "XDG_STATE_HOME"),
        (f"{sealed}/.cache/gpuctl/file", "XDG_CACHE_HOME"),
        (f"{sealed}/.config/gpuctl/file", "XDG_CONFIG_HOME"),
        (f"{sealed}/.local", "XDG_STATE_HOME"),
    )
    assert done.stdout.splitlines() == [
        f"{path} cannot be written: Permission denied ({sealed} is {USER}'s, mode 500);"
        f" let {USER} write {sealed}, or set {variable} to a folder that you can write"
        for path, variable in refused
    ]


def test_relative_folders_of_the_variables_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "here")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert state_home() == tmp_path / "me/.local/state/gpuctl"
    assert cache_home() == tmp_path / "me/.cache/gpuctl"
    assert config_home() == tmp_path / "me/.config/gpuctl"


def test_a_command_makes_no_folder_where_it_is_called(tmp_path: Path) -> None:
    place = tmp_path / "project"
    place.mkdir()
    relative = {name: "here" for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    subprocess.run(
        [str(COMMAND), "ps"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        | relative,
        cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    assert os.listdir(place) == []  # noqa: PTH208
    assert (tmp_path / ".local/state/gpuctl").is_dir()


def test_a_home_that_nothing_says_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "relative")
    with pytest.raises(StateError) as refused:
        home()
    assert str(refused.value) == (
        "the home folder is unknown; set HOME to a folder that you can write"
    )
