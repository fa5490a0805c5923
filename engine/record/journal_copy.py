"""The client's copy of a run's journal, which `gpuctl logs` prints after the cluster is gone.

The copy has the same lines at the same offsets as the journal on the head, in the same kind of
pieces (agent/journal/journal.py). So its `offset` is the one from which to follow on, and two
clients of the same run write the same bytes to the same places.

Copies have a budget, and the oldest are removed. The history keeps all results.

A job is root on the head that sends the events, so they are bounded. Output has the journal's own
budget, which removes the oldest. All other events stay, in the journal's copy, in the history and
as files of evidence. Their bound is for the client that follows a run and for everybody who reads a
copy.
"""

import contextlib
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from config.command_text import command_text
from config.errors import RunError
from config.files import is_access_error, os_errors_as, path_below
from config.identifiers import RUN_ID, is_valid
from engine.agent.journal.journal_file import (
    JOURNAL,
    LONGEST,
    JournalFile,
    JournalReader,
    end_of_line,
    kind_of,
)
from engine.agent.journal.rotating_file import SIZE, budget_on, open_piece, pieces
from engine.agent.journal.run_folders import AGE_S, StoredRun, folder_size, runs_to_remove
from engine.contract.event import Event, to_line
from engine.contract.head_events import (
    Evidence,
    NotificationsEnded,
    OutputDropped,
    OutputJudged,
    RunFinished,
)
from engine.contract.names import RECORD
from engine.contract.worker_events import Output
from engine.record.events import FirstEvent, parse_event
from engine.record.history import RunRecord


class Bound(NamedTuple):
    """The most events of a run, and the most bytes of their lines."""

    number: int
    size: int


EVENTS = Bound(1_000_000, 256 << 20)
"""All events but output. A run of 16,000 ranks has about 6 MiB of them in an attempt."""
EVIDENCE = Bound(1_000, 32 << 20)
"""Events that become files. A head examines 8 lost nodes of a run, each with 8 files of 16 KiB."""


class EventBudget:
    """What the events of one run have used of their bounds so far."""

    def __init__(self, events: Bound = EVENTS, evidence: Bound = EVIDENCE) -> None:
        self._most, self._most_evidence = events, evidence
        self._events, self._evidence = Bound(0, 0), Bound(0, 0)
        self.time = 0.0
        """The time of the last event."""
        self._has_warned = False

    def admits(self, line: str | bytes, event: Event | None) -> bool:
        """Return whether the line is kept, and count it; `event` is None for an unknown kind.

        The run's end and that of its notifications are always kept: following ends with them. What
        an earlier client has left out (`JournalCopy.leave_out`) is not.
        """
        if event is not None:
            self.time = event.time
        if isinstance(event, (RunFinished, NotificationsEnded)):
            return True
        if isinstance(event, OutputDropped) and not event.ranks:
            return False
        if isinstance(event, Output):
            return True  # the journal's own budget removes it
        if isinstance(event, Evidence):
            self._evidence = _sum(self._evidence, line)
            if _is_over(self._evidence, self._most_evidence):
                return False
        self._events = _sum(self._events, line)
        return not _is_over(self._events, self._most)

    def warning(self) -> OutputJudged | None:
        """Return the warning that events are left out; None if it was returned already."""
        if self._has_warned:
            return None
        self._has_warned = True
        events, evidence = self._most, self._most_evidence
        return OutputJudged(
            time=self.time,
            rank=0,
            level="warning",
            text=f"the head sent more than {events.size >> 20} MiB or {events.number:,} events in"
            f" addition to output, or more than {evidence.size >> 20} MiB or"
            f" {evidence.number:,} files of evidence: the rest is left out;"
            " a job is root on the head: check what ran there",
        )


def _sum(used: Bound, line: str | bytes) -> Bound:
    return Bound(used.number + 1, used.size + len(line))


def _is_over(used: Bound, bound: Bound) -> bool:
    return used.number > bound.number or used.size > bound.size


def kept_path(runs: Path, run_id: str, *names: str) -> Path:
    """Return the path of a run's file on this machine: below the run's own folder, by no link.

    Raises RunError for an id that is none, and StateError for a link on the way.
    """
    if not is_valid(run_id, RUN_ID):
        raise RunError(f"{run_id!r} is no id of a run", "`gpuctl ps` lists the runs")
    return path_below(runs, run_id, *names)


class _Unkept:
    """A copy that ends with what this machine has: later lines only advance its offset."""

    def __init__(self, path: Path) -> None:
        with closing(JournalReader(path)) as reader:
            for _ in reader.read():
                pass  # only the offset of the end is needed
            self.offset = reader.offset

    def append_line(self, line: bytes) -> None:
        self.offset = end_of_line(self.offset, line)

    def close(self) -> None:
        """Do nothing: no file is open."""


class JournalCopy:
    """The copy of one run's journal. Where this user may not write, it keeps nothing more."""

    def __init__(self, runs: Path, run_id: str, piece: int = SIZE) -> None:
        self._path = kept_path(runs, run_id, JOURNAL)
        self._left_out: tuple[int, int] | None = None
        self._time = 0.0
        self._file: JournalFile | _Unkept
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = JournalFile(self._path, budget_on(self._path.parent), piece)
        except OSError as error:
            if not is_access_error(error):
                raise RunError(
                    f"{self._path} cannot be written: {error.strerror}", "free space on the disk"
                ) from error
            self._file = _Unkept(self._path)

    @property
    def is_kept(self) -> bool:
        """Return whether the lines are written, and not only counted."""
        return isinstance(self._file, JournalFile)

    @property
    def offset(self) -> int:
        """The offset in the journal of the next line, which is the first that is missing here."""
        return self._file.offset if self._left_out is None else self._left_out[1]

    def append(self, line: str) -> None:
        """Write the line at `offset`, and advance `offset`."""
        self._write_gap()
        self._append(line)

    def leave_out(self, line: str, time: float) -> None:
        """Advance `offset` as `append` does, but write one short line for all that is left out.

        `time` is that of the line's event, or of the last one before it.
        """
        start = self.offset
        end = max(end_of_line(start, line.encode() + b"\n"), start + 1)
        if self._left_out is None:
            self._left_out, self._time = (start, end), time
        else:
            self._left_out = (self._left_out[0], end)

    def _write_gap(self) -> None:
        if self._left_out is not None:
            start, end = self._left_out
            self._append(to_line(OutputDropped(start, end, (), time=self._time)))
            self._left_out = None

    def _append(self, line: str) -> None:
        try:
            self._file.append_line(line.encode() + b"\n")
        except OSError as error:
            raise RunError(
                f"{self._path} cannot be written: {error.strerror}", "free space on the disk"
            ) from error

    def close(self) -> None:
        """Close the file, after the line for what was left out last."""
        try:
            self._write_gap()
        finally:
            self._file.close()


def recorded_events(runs: Path, run_id: str, budget: EventBudget | None = None) -> Iterator[Event]:
    """Yield the events of the copy that are within the budget; none for a run without a copy.

    A warning takes the place of the first that is left out, here or by the client that wrote the
    copy. Raises RunError if the file is damaged.
    """
    path = kept_path(runs, run_id, JOURNAL)
    budget = budget or EventBudget()
    reader = JournalReader(path)
    try:
        for line in reader.read():
            event = parse_event(line)
            if not budget.admits(line, event):
                event = budget.warning()
            if event is not None:
                yield _of_run(event, run_id)
    except (ValueError, EOFError, zlib.error, OSError) as error:
        raise RunError(
            f"{path} is damaged: {error}",
            f"remove the file; {command_text('gpuctl logs {} -f', run_id)} fetches it again",
        ) from error
    finally:
        reader.close()


def _of_run(event: Event, run_id: str) -> Event:
    """Return the event; raise ValueError for the beginning of another run."""
    if isinstance(event, FirstEvent) and event.run_id != run_id:
        raise ValueError(f"it is of run {event.run_id}")
    return event


def has_end(runs: Path, run_id: str) -> bool:
    """Return whether the copy has the run's end, after which only notifications come."""
    last = pieces(kept_path(runs, run_id, JOURNAL))[-2:]
    try:
        return any(_has_end(piece.path) for piece in reversed(last))
    except (EOFError, zlib.error, OSError):  # it is damaged: a reader reports it
        return False


def _has_end(piece: Path) -> bool:
    with open_piece(piece) as file:
        while line := file.readline(LONGEST):
            if kind_of(line, "run_finished"):
                return True
    return False


def last_heard(runs: Path, run_id: str) -> datetime | None:
    """Return when this machine last received an event of the run; None if it never has."""
    newest = pieces(kept_path(runs, run_id, JOURNAL))[-1:]
    try:
        return datetime.fromtimestamp(newest[0].path.stat().st_mtime, UTC) if newest else None
    except FileNotFoundError:  # another gpuctl removes it
        return None


def kept_files(runs: Path, run_id: str) -> list[Path]:
    """Return the files that show the run again: the journal's first piece is the last."""
    others = [samples_path(runs, run_id), *sorted(evidence_folder(runs, run_id).rglob("*.txt"))]
    journal = [piece.path for piece in reversed(pieces(kept_path(runs, run_id, JOURNAL)))]
    return [*(path for path in others if path.is_file() and not path.is_symlink()), *journal]


def evidence_folder(runs: Path, run_id: str) -> Path:
    """Return the folder with the evidence about lost nodes; it exists only if a node was lost."""
    return kept_path(runs, run_id, "evidence")


def samples_path(runs: Path, run_id: str) -> Path:
    """Return the path of the run's samples; it exists once a client has fetched them."""
    return kept_path(runs, run_id, f"{RECORD}.gz")


def write_evidence(folder: Path, node: str, source: str, text: str) -> None:
    """Write the evidence that `source` showed about a lost node to `NODE/SOURCE.txt`."""
    # Both names come from a machine on which the job was root, so only their last part is used.
    path = path_below(folder, Path(node).name, f"{Path(source).name}.txt")
    with os_errors_as(RunError, f"{path} cannot be written", "free space on the disk"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8")


BUDGET = 10 << 30
"""The budget of the client for all runs, in bytes."""


def stored_runs(runs: Path, known: Iterable[RunRecord]) -> list[StoredRun]:
    """Return the runs with files on this client; only runs that are over are removable."""
    return [
        StoredRun(
            folder,
            folder_size(folder),
            (record.ended or record.started).timestamp(),
            record.is_over,
        )
        for record in known
        if (folder := kept_path(runs, record.run_id)).is_dir()
    ]


def runs_over_budget(kept: list[StoredRun], age_s: float = AGE_S) -> list[StoredRun]:
    """Return the runs to remove, oldest first: older than `age_s`, or over BUDGET in total."""
    return runs_to_remove(kept, BUDGET, age_s, time.time())


def remove(kept: Iterable[StoredRun]) -> None:
    """Remove journals and evidence of the runs; raise RunError if that is not permitted."""
    for run in kept:
        problem = f"{run.folder} cannot be removed"
        with (
            os_errors_as(RunError, problem, "make the state folder writable"),
            contextlib.suppress(FileNotFoundError),  # another gpuctl removes it too
        ):
            shutil.rmtree(run.folder)
