"""The log of a command: what it has, what it never has, how many are kept."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command_log import KEPT_BYTES, KEPT_FILES, start
from cli.output import Output
from config.folders import logs_folder
from config.progress import Progress
from tests.small_disks import small_disk

HOME = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE", str(tmp_path))
    return tmp_path


def logged(command: str = "up", words: tuple[str, ...] = (), level: str = "info") -> list[str]:
    """The lines of the log of a command with a step and a warning, without times."""
    log = start(command, ["--lab", command, *words], level)
    with Output(is_quiet=True).progress() as view:
        for state in ("start", "running", "done"):
            view.report(Progress("boot", "node0", state))
        view.warn("no quota is known")
    log.write_end(0)
    lines = log.path.read_text().splitlines()
    return [re.sub(r"^20\S+ \S+ |after [\d.]+ s$", "", line) for line in lines]


def test_log_has_the_command_its_steps_and_its_end() -> None:
    first, versions, *lines = logged(words=("cluster.yaml",))
    assert first == "gpuctl --lab up cluster.yaml"
    assert re.fullmatch(r"gpuctl \S+, Python 3\.\S+, \S+", versions)
    assert lines == [
        "INFO boot: node0: start",
        "INFO boot: node0: done",
        "WARNING no quota is known",
        "INFO ended with 0 ",
    ]


def test_level_chooses_what_is_logged() -> None:
    assert "DEBUG boot: node0: running" in logged(level="debug")
    assert logged("down", level="warning")[2:] == ["WARNING no quota is known"]


def test_other_libraries_log_warnings_alone() -> None:
    log = start("up", ["up"], "debug")
    logging.getLogger("botocore.auth").debug("CanonicalRequest: …")
    assert not log.path.exists()
    logging.getLogger("asyncssh").warning("host key has changed")
    assert log.path.read_text().endswith("WARNING host key has changed\n")


def test_secrets_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "hunter22\nhunter33")
    monkeypatch.setenv("DEBUG_AUTH", "true")  # a word
    log = start("run", ["run", "a.yaml", "--env", "KEY=abc", "--env=B=c d", "exec", "X=1"], "info")
    for text in ("hunter22 is true", "at hunter33", "https://me:word@host/x", "ghp_" + "a" * 20):
        logging.getLogger("gpuctl").info("%s", text)
    lines = log.path.read_text().splitlines()
    assert lines[0] == "gpuctl run a.yaml --env 'KEY=***' '--env=B=***' exec 'X=***'"
    assert [line.partition(" INFO ")[2] for line in lines[2:]] == [
        "*** is true", "at ***", "https://***@host/x", "***",
    ]  # fmt: skip


def test_only_its_owner_reads_a_log() -> None:
    logged()
    (path,) = logs_folder().iterdir()
    assert (path.stat().st_mode & 0o777, logs_folder().stat().st_mode & 0o777) == (0o600, 0o700)


def test_oldest_logs_go() -> None:
    logs_folder().mkdir()
    for number in range(KEPT_FILES + 5):
        (logs_folder() / f"20260101-0000{number:02}-1-up.log").write_text("old")
    logged("down")
    names = sorted(path.name for path in logs_folder().iterdir())
    assert len(names) == KEPT_FILES
    assert names[0] == "20260101-000006-1-up.log"
    os.truncate(logs_folder() / names[0], KEPT_BYTES)
    logged("gc")
    assert not (logs_folder() / names[0]).exists()
    assert (logs_folder() / names[1]).exists()


def test_command_that_logs_nothing_leaves_no_file() -> None:
    log = start("ps", ["ps"], "info")
    log.write_end(0)
    assert not logs_folder().exists()


def test_folder_that_cannot_be_written_ends_no_command(state: Path) -> None:
    (state / "logs").write_text("a file")
    log = start("up", ["up"], "info")
    logging.getLogger("gpuctl").warning("something")
    assert not log.is_written


@pytest.mark.lab
def test_full_disk_ends_no_command_neither_at_once_nor_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        monkeypatch.setenv("GPUCTL_STATE", str(disk))
        log = start("up", ["up"], "info")
        logging.getLogger("gpuctl").warning("%s", "x" * (2 << 20))
        logging.getLogger("gpuctl").warning("more")
        assert log.is_written
        log.close()


def gpuctl(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, with a part of Python broken before."""
    door = f"import sys, gpuctl\n{program}\nsys.argv[0] = 'gpuctl'\ngpuctl.main()"
    return subprocess.run(
        [sys.executable, "-c", door, *words],
        cwd=HOME, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def test_mistake_of_gpuctl_names_the_log_with_its_traceback() -> None:
    done = gpuctl("import json; json.dumps = None", "templates", "--json")
    (path,) = logs_folder().iterdir()
    assert (done.returncode, done.stderr) == (
        1,
        "gpuctl: error: TypeError: 'NoneType' object is not callable; this is a mistake in gpuctl,"
        f" please report it with {path}\n",
    )
    text = path.read_text()
    assert "Traceback (most recent call last):" in text
    assert " ended with 1 after " in text


def test_error_of_a_file_is_no_mistake_of_gpuctl() -> None:
    done = gpuctl("", "validate", "nowhere.yaml")
    assert done.returncode == 2
    assert not logs_folder().exists()


def test_level_that_does_not_exist_is_refused() -> None:
    done = gpuctl("", "ps", "--log-level", "loud")
    assert (done.returncode, done.stderr) == (
        2,
        "gpuctl: error: --log-level is 'loud'; debug, info, warning, error are allowed\n",
    )


def test_error_before_a_command_begins_is_its_line_alone() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuctl", "config"],
            cwd=HOME, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.stderr == (
        "gpuctl: error: stdout cannot be written: No space left on device; send stdout to another"
        " file, or to /dev/null; `gpuctl status` shows what exists\n"
    )
