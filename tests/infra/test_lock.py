import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.stack.stack_lock import LockHolder, _elapsed, holders

COMPLAINT = (
    "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to"
    " end or delete the lock file with `pulumi cancel`.\n"
    "  file:///s/.pulumi/locks/organization/gpuctl/demo/1.json: created by root@{host} (pid {pid})"
    " at 2026-11-20T19:44:33Z"
)


def test_the_holder_is_read_from_the_complaint() -> None:
    [holder] = holders(COMPLAINT.format(host="elsewhere", pid=7))
    assert str(holder) == "root@elsewhere (pid 7) since 2026-11-20T19:44:33Z"
    assert not holder.is_here


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a process whose program has that name and whose arguments speak of pulumi."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        program = tmp_path / name
        shutil.copy(shutil.which("sleep") or "", program)
        started.append(subprocess.Popen([program, "1000", "1001"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def holder_of(process: subprocess.Popen[bytes], since: datetime) -> LockHolder:
    at = since.isoformat(timespec="seconds").replace("+00:00", "Z")
    complaint = COMPLAINT.format(host=socket.gethostname(), pid=process.pid)
    [holder] = holders(complaint.replace("2026-11-20T19:44:33Z", at))
    assert holder.is_here
    return holder


def test_the_engine_that_made_the_lock_is_stopped(
    engine: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    process = engine("pulumi")
    holder = holder_of(process, datetime.now(UTC))
    assert holder.is_alive
    holder.stop()
    assert process.wait(60) == -signal.SIGINT
    assert not holder.is_alive


@pytest.mark.parametrize(
    ("program", "age"),
    [("pulumi-notes", timedelta()), ("vi", timedelta()), ("pulumi", timedelta(minutes=5))],
    ids=["its name begins so", "only its arguments speak of it", "an engine of later"],
)
def test_a_pid_that_is_another_program_by_now_holds_nothing(
    engine: Callable[[str], subprocess.Popen[bytes]], program: str, age: timedelta
) -> None:
    assert not holder_of(engine(program), datetime.now(UTC) - age).is_alive


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:07", 7),
        ("12:03", 723),
        ("02:00:01", 7201),
        ("3-01:00:00", 3 * 86400 + 3600),
        ("49710-06:28:15", 0),
    ],
)
def test_the_age_of_a_process_is_read_as_ps_writes_it(text: str, seconds: int) -> None:
    assert _elapsed(text) == timedelta(seconds=seconds)


def test_a_complaint_without_lock_has_no_holder() -> None:
    assert holders("error: something else") == ()
