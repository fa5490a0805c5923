"""What a run has saved in shared storage, as a client takes it (copied in e2e/test_storage.py)."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.contract.event import to_line
from engine.contract.worker_events import Output
from engine.record.history import History
from engine.record.journal_copy import (
    Bound,
    JournalCopy,
    evidence_folder,
    recorded_events,
    samples_path,
)
from engine.record.outputs_folder import choose_outputs, outputs_folder
from engine.session.outputs import take_saved
from tests.engine.conftest import make_plan
from tests.engine.record.test_history import FINISHED
from tests.engine.record.test_history import STARTED as ANY_STARTED

RUN = make_plan().run_id
STARTED = replace(ANY_STARTED, run_id=RUN, on_stop="destroy")
SAID = Output(time=1, rank=0, stream="stdout", text="said", ends_line=True)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The runs of a machine on which the run is lost; it has a part of the journal."""
    folder = tmp_path / "runs"
    choose_outputs(folder, RUN, tmp_path / "outputs")
    with History(folder) as history:
        history.begin(make_plan())
        history.mark_lost(RUN, "its head is gone")
    copy = JournalCopy(folder, RUN)
    copy.append('{"kind": "node_ready", "time": 0, "rank": 0}')
    copy.close()
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """What nodes have saved, as it came here."""
    folder = tmp_path / "saved"
    (folder / "outputs/rank-1/out").mkdir(parents=True)
    (folder / "outputs/rank-1/out/model").write_text("1")
    (folder / "outputs/rank-1/newest").symlink_to("out")
    (folder / "metrics.jsonl").write_text("first\n")
    with gzip.open(folder / f"metrics-{6:015}.jsonl.gz", "wt") as file:
        file.write("second\n")
    lines = (to_line(one) + "\n" for one in (STARTED, SAID, FINISHED))
    (folder / "journal.jsonl").write_text("".join(lines))
    return folder


def test_it_becomes_this_machines_copy_and_the_run_is_done(saved: Path, runs: Path) -> None:
    assert take_saved(saved, RUN, runs) == ()
    assert list(recorded_events(runs, RUN)) == [STARTED, SAID, FINISHED]
    with gzip.open(samples_path(runs, RUN), "rt") as file:
        assert file.read() == "first\nsecond\n"
    outputs = outputs_folder(runs, RUN)
    assert (outputs / "rank-1/newest/model").read_text() == "1"
    with History(runs) as history:
        run = history.find(RUN)
    assert (run.status, run.exit_code, run.reason) == ("done", 0, "")


def test_what_nodes_did_not_save_is_told(saved: Path, runs: Path) -> None:
    (saved / "not-saved.txt").write_text("node1: no answer\n")
    assert take_saved(saved, RUN, runs) == ("node1: no answer",)


def test_without_a_journal_nothing_is_taken(saved: Path, runs: Path) -> None:
    (saved / "journal.jsonl").unlink()
    assert take_saved(saved, RUN, runs) is None
    assert len(list(recorded_events(runs, RUN))) == 1
    assert not outputs_folder(runs, RUN).exists()


def test_a_link_is_not_taken_for_a_file_of_this_machine(saved: Path, runs: Path) -> None:
    secret = saved.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    for name in ("metrics.jsonl", "outputs"):
        (saved / name).rename(saved / f"{name}.away")
        (saved / name).symlink_to(secret / "key" if name == "metrics.jsonl" else secret)
    take_saved(saved, RUN, runs)
    with gzip.open(samples_path(runs, RUN), "rt") as file:
        assert file.read() == "second\n"
    assert not outputs_folder(runs, RUN).exists()


def test_a_run_whose_journal_has_no_end_stays_lost(saved: Path, runs: Path) -> None:
    (saved / "journal.jsonl").write_text(to_line(STARTED) + "\n")
    assert take_saved(saved, RUN, runs) == ()
    assert list(recorded_events(runs, RUN)) == [STARTED]
    with History(runs) as history:
        assert history.find(RUN).is_lost


def test_saved_metrics_are_unpacked_up_to_a_bound(saved: Path, runs: Path) -> None:
    with gzip.open(saved / f"metrics-{6:015}.jsonl.gz", "wb") as file:
        file.write(b"x" * (64 << 20))
    missing = "metrics: they have more than 3 MiB, or are damaged"
    assert take_saved(saved, RUN, runs, most_samples=3 << 20) == (missing,)
    with gzip.open(samples_path(runs, RUN)) as samples:
        assert len(samples.read()) == 3 << 20


@pytest.mark.parametrize(
    "damaged",
    [b"no gzip", gzip.compress(b"second\n")[:-4]],
    ids=["no gzip", "cut short"],
)
def test_damaged_metrics_keep_no_run_from_its_result(
    saved: Path, runs: Path, damaged: bytes
) -> None:
    (saved / f"metrics-{6:015}.jsonl.gz").write_bytes(damaged)
    missing = "metrics: they have more than 512 MiB, or are damaged"
    assert take_saved(saved, RUN, runs) == (missing,)
    with History(runs) as history:
        assert history.find(RUN).status == "done"


def test_saved_evidence_over_its_bound_is_left_out(saved: Path, runs: Path) -> None:
    folder = saved / "evidence/node1"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.txt").write_text("x")
    again = saved.with_name("again")
    shutil.copytree(saved, again, symlinks=True)
    assert take_saved(saved, RUN, runs) == ()
    assert len(list(evidence_folder(runs, RUN).rglob("*.txt"))) == 4
    shutil.rmtree(evidence_folder(runs, RUN))
    left_out = take_saved(again, RUN, runs, most_evidence=Bound(3, 1 << 20))
    assert left_out == ("evidence: it has more than 3 files or 1 MiB",)
    assert not evidence_folder(runs, RUN).exists()
