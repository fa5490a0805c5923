"""Which runs are kept: on a node by its disk, never one that lives or that nobody has read."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.budget import AGE_S, StoredRun, folder_size, remove_old_runs, runs_to_remove
from engine.agent.control import JOURNAL, READ, follow

NOW = 1_000_000_000.0
Disk = namedtuple("Disk", "total")
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
    """A node's folder of runs, on a disk of 10 MiB."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(10 << 20))
    return tmp_path


def earlier(runs: Path, name: str, kib: int, days: float, *files: str) -> Path:
    folder = runs / name
    folder.mkdir()
    (folder / "rank-1.log").write_bytes(os.urandom(kib << 10))
    for file in files:
        (folder / file).touch()
    for path in (*folder.iterdir(), folder):
        before = path.stat().st_mtime - days * 86400
        os.utime(path, (before, before))
    return folder


def names(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.iterdir())


def test_a_tenth_of_the_disk_is_kept_and_the_oldest_goes(runs: Path) -> None:
    for days, name in enumerate("abcd"):
        earlier(runs, name, 400, days)
    remove_old_runs(runs / "new")
    assert names(runs) == ["a", "b"]


def test_what_is_older_than_30_days_goes(runs: Path) -> None:
    earlier(runs, "old", 4, AGE_S / 86400 + 1)
    earlier(runs, "young", 4, AGE_S / 86400 - 1)
    remove_old_runs(runs / "new")
    assert names(runs) == ["young"]


def test_what_nobody_has_read_stays(runs: Path) -> None:
    earlier(runs, "unread", 2000, 99, JOURNAL)
    earlier(runs, "read", 4, 99, JOURNAL, READ)
    remove_old_runs(runs / "new")
    assert names(runs) == ["unread"]


def test_a_run_that_lives_and_the_one_that_begins_stay(runs: Path) -> None:
    earlier(runs, "living", 2000, 99)
    own = earlier(runs, "own", 2000, 99)
    living = str(runs / "living")
    script = f"from engine.agent.budget import *; protect_folder(Path({living!r}))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}; print(); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        remove_old_runs(own)
        assert names(runs) == ["living", "own"]
    remove_old_runs(own)
    assert names(runs) == ["own"]


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
    follow(tmp_path, 0)
    assert (tmp_path / READ).exists()
    assert capfdbinary.readouterr().out == b'{"kind": "run_finished"}\n'
