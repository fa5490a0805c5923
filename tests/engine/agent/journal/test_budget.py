"""Which runs are kept: on a node by its disk, never one that lives or that nobody has read."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.journal import run_folders
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.run_folders import (
    AGE_S,
    READ,
    USED,
    StoredRun,
    folder_size,
    mark_used,
    remove_old_runs,
    runs_to_remove,
)
from engine.agent.link.control import follow

UP_DAYS = 200
NOW = 1_000_000_000.0
DISK_SIZE = 10 << 20
RUNS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100), st.booleans()), max_size=12)


def kept(runs: list[tuple[int, int, bool]]) -> list[StoredRun]:
    return [
        StoredRun(Path(f"/runs/{number}"), size, NOW - age, is_removable)
        for number, (size, age, is_removable) in enumerate(runs)
    ]


@given(RUNS, st.integers(0, 200), st.integers(0, 100))
def test_the_oldest_go_and_no_more_than_need_to(
    runs: list[tuple[int, int, bool]], size: int, age: int
) -> None:
    every = kept(runs)
    gone = runs_to_remove(every, size, age, NOW)
    left = [run for run in every if run not in gone]
    assert all(run.is_removable for run in gone)
    assert all(not run.is_removable or NOW - run.ended <= age for run in left)
    total = sum(run.size for run in left)
    assert total <= size or not any(run.is_removable for run in left)
    young = [run for run in gone if NOW - run.ended <= age]
    if young:  # the newest that went had to go: with it, it would have been too much
        assert total + young[-1].size > size
        assert all(run.ended >= young[-1].ended for run in left if run.is_removable)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's folder of runs; the node is up for UP_DAYS."""
    monkeypatch.setattr(run_folders, "steady", lambda: UP_DAYS * 86400.0)
    return tmp_path


def earlier(runs: Path, name: str, kib: int, days: float, *files: str) -> Path:
    folder = runs / name
    folder.mkdir()
    (folder / "rank-1.log").write_bytes(os.urandom(kib << 10))
    for file in files:
        (folder / file).touch()
    use(folder, days)
    return folder


def use(folder: Path, days: float) -> None:
    """Make the last use of the folder so many days ago, of a machine that is up for UP_DAYS."""
    mark_used(folder)
    (mark,) = folder.glob(f"{USED}*")
    used = (UP_DAYS - days) * 86400
    os.utime(mark, (used, used))


def names(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.iterdir())


def test_a_tenth_of_the_disk_is_kept_and_the_oldest_goes(runs: Path) -> None:
    for days, name in enumerate("abcd"):
        earlier(runs, name, 400, days)
    remove_old_runs(runs / "new", DISK_SIZE)
    assert names(runs) == ["a", "b"]


def test_what_is_older_than_30_days_goes(runs: Path) -> None:
    earlier(runs, "old", 4, AGE_S / 86400 + 1)
    earlier(runs, "young", 4, AGE_S / 86400 - 1)
    remove_old_runs(runs / "new", DISK_SIZE)
    assert names(runs) == ["young"]


def test_what_nobody_has_read_stays(runs: Path) -> None:
    earlier(runs, "unread", 2000, 99, JOURNAL)
    earlier(runs, "read", 4, 99, JOURNAL, READ)
    remove_old_runs(runs / "new", DISK_SIZE)
    assert names(runs) == ["unread"]


def test_a_run_that_lives_and_the_one_that_begins_stay(runs: Path) -> None:
    earlier(runs, "living", 2000, 99)
    own = earlier(runs, "own", 2000, 99)
    living = str(runs / "living")
    script = f"from engine.agent.journal.locks import *; protect_folder(Path({living!r}))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}; print(); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        remove_old_runs(own, DISK_SIZE)
        assert names(runs) == ["living", "own"]
    remove_old_runs(own, DISK_SIZE)
    assert names(runs) == ["own"]


@pytest.mark.parametrize("years", [-60, -1, 0, 1, 60])
def test_a_clock_that_is_set_changes_no_age(
    runs: Path, monkeypatch: pytest.MonkeyPatch, years: float
) -> None:
    old, young = AGE_S / 86400 + 1, AGE_S / 86400 - 1
    for days, name in ((old, "old"), (young, "young"), (0.0, "tree-fresh"), (1.0, "tree-unused")):
        earlier(runs, name, 4, days)
    now = time.time
    if years:
        monkeypatch.setattr(time, "time", lambda: now() + years * 365.25 * 86400)
    remove_old_runs(runs / "new", DISK_SIZE)
    assert names(runs) == ["tree-fresh", "tree-unused", "young"]
    remove_old_runs(runs / "new", 0)
    assert names(runs) == ["tree-fresh"]


def test_a_run_that_begins_at_this_moment_is_the_newest(runs: Path) -> None:
    earlier(runs, "old", 1023, 1)
    (runs / "unmarked").mkdir()
    (runs / "unmarked" / "hostfile").write_bytes(os.urandom(4096))
    remove_old_runs(runs / "new", DISK_SIZE)
    assert names(runs) == ["unmarked"]


def test_what_was_used_before_the_boot_is_as_old_as_the_boot(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(run_folders, "boot_id", lambda: "11111111-before")
        for days, name in ((190, "a"), (0, "b")):
            earlier(runs, name, 4, days)
    earlier(runs, "c", 4, 1)
    limit = AGE_S / 86400
    for up, left in ((limit - 1, ["a", "b", "c"]), (limit + 1, ["c"])):
        monkeypatch.setattr(run_folders, "steady", lambda now=up * 86400: now)
        use(runs / "c", UP_DAYS - up)
        remove_old_runs(runs / "new", DISK_SIZE)
        assert names(runs) == left


def test_a_node_without_earlier_runs_has_nothing_to_remove(tmp_path: Path) -> None:
    remove_old_runs(tmp_path / "missing" / "new")
    assert names(tmp_path) == []


def test_the_size_of_a_folder_is_what_its_disk_gives_up(tmp_path: Path) -> None:
    (tmp_path / "evidence" / "node1").mkdir(parents=True)
    (tmp_path / "evidence" / "node1" / "ssh.txt").write_bytes(os.urandom(1 << 20))
    assert 1 << 20 <= folder_size(tmp_path) < (1 << 20) + (64 << 10)


def test_a_journal_that_was_followed_to_its_end_is_read(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / JOURNAL).write_text('{"kind": "run_finished"}\n')
    follow(tmp_path, "0")
    assert (tmp_path / READ).exists()
    assert len(list(tmp_path.glob(f"{USED}*"))) == 1  # its outputs have another 30 days
    assert capfdbinary.readouterr().out == b'{"kind": "run_finished"}\n'
