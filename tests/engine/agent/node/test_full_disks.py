"""A disk that is full ends no run: the job's end, the reason and the verdict are written."""

import contextlib
import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.agent.journal.journal import RESERVE, RESERVED, Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.redaction import Redaction
from engine.agent.node.output import Log, pump
from engine.contract.head_events import NodeLost
from engine.contract.worker_events import NodeExited, Output
from tests.engine.bare_events import FINISHED, STARTED, printed
from tests.engine.conftest import LocalCluster, Reader, make_plan

FULL = "No space left on device"
MIB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every line of the journal, each of which must be whole."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.lab
def test_what_decides_is_written_when_output_has_no_room(small: Path) -> None:
    journal = Journal(small / JOURNAL, reserved=MIB)
    journal.append(STARTED)
    for number in range(200):
        journal.append(Output(0, "stdout", "x" * 10_000, offset=number))
    journal.append(NodeExited(1, 0, None))
    journal.append(FINISHED)
    journal.close()
    events = lines_of(small / JOURNAL)
    kinds = [event["kind"] for event in events]
    kept = kinds.count("output")
    assert 80 < kept < 110
    after = ["disk_full", "node_exited", "run_finished"]
    assert kinds == ["run_started", *["output"] * kept, *after]
    assert [event.get("offset", 0) for event in events[1 : kept + 1]] == list(range(kept))
    assert events[kept + 1]["text"] == f"the run's output is not stored any more: {FULL}"
    assert (journal.dropped, journal.write_error) == (200 - kept, FULL)
    assert not (small / RESERVE).exists()


@pytest.mark.lab
def test_a_disk_that_others_fill_too_drops_events_and_raises_nothing(small: Path) -> None:
    journal = Journal(small / JOURNAL, reserved=MIB)
    fill(small / "others")  # all but the reserve
    journal.append(printed("x" * 10_000))
    fill(small / "others")  # and that
    for _ in range(20):
        journal.append(NodeLost(0, "x" * 10_000))
    assert journal.dropped > 10
    journal.close()
    assert {event["kind"] for event in lines_of(small / JOURNAL)} <= {"disk_full", "node_lost"}


def test_the_reserve_is_given_back_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL)
    assert (tmp_path / RESERVE).stat().st_blocks * 512 >= RESERVED
    journal.close()
    assert not (tmp_path / RESERVE).exists()


def run(cluster: LocalCluster, disk: Path, end: str) -> tuple[str, int, str]:
    """Status, exit code and reason of a run that prints 4 MiB and then ends so."""
    cluster.journal.close()
    cluster.journal = Journal(disk / JOURNAL, reserved=MIB)
    script = f"for i in $(seq 64); do head -c 65535 /dev/zero | tr '\\0' x; echo; done; {end}"
    verdict = cluster.execute(make_plan(nodes=1, commands=(script,)))
    assert lines_of(disk / JOURNAL)[-1]["reason"] == verdict.reason
    return verdict.status, verdict.exit_code, verdict.reason


@pytest.mark.lab
def test_a_run_whose_output_is_not_all_kept_is_not_done(cluster: LocalCluster, small: Path) -> None:
    status, code, reason = run(cluster, small, "true")
    assert (status, code) == ("failed", 125)
    lost = reason.removeprefix(f"node0's disk is full ({FULL}): ")
    count, rest = lost.split(" ", 1)
    assert int(count) > 64
    assert rest == "events were not stored"


@pytest.mark.lab
def test_a_job_that_failed_says_so_first(cluster: LocalCluster, small: Path) -> None:
    status, code, reason = run(cluster, small, "exit 7")
    assert (status, code) == ("failed", 7)
    assert reason.startswith(f"node0: exited with 7; node0's disk is full ({FULL}): ")


@pytest.mark.lab  # only root may make a device
def test_a_log_that_has_no_room_ends_and_the_output_goes_on(tmp_path: Path) -> None:
    # A log is no link, so /dev/full is made again in its place.
    os.mknod(tmp_path / "rank-1.log", stat.S_IFCHR | 0o600, Path("/dev/full").stat().st_rdev)
    reader = Reader()
    log = Log(tmp_path, 1, reader.stream)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        pumped = threading.Thread(target=pump, args=(pipe, "stderr", log, Redaction(())))
        pumped.start()
        os.write(write, b"cp: error writing: No space left on device\nsecond\nthird")
        os.close(write)
        pumped.join()
    log._file.close()
    events = reader.events()
    texts = [event.get("text") for event in events]
    first = "cp: error writing: No space left on device"
    assert texts == [f"rank-1.log ends here: {FULL}", f"{first}\nsecond", "third"]
    assert [event["kind"] for event in events] == ["disk_full", "output", "output"]
    assert [event["offset"] for event in events[1:]] == [0, len(f"{first}\nsecond\n")]
