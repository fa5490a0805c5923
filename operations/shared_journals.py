"""The journals of a team's runs that are over, in its bucket: what they printed, used and found.

The objects of a run are the files that its client keeps (`engine/record/journal_copy.py`), and its
setting. The journal's first piece is written last: with it a run's files are whole.
"""

import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from config.bucket import Changed, bucket_of
from config.errors import GpuctlError, RunError, StateError
from config.foreign import Malformed, parse_foreign
from config.identifiers import BUCKET_KEY, is_valid
from config.quantities import size
from engine.agent.journal.journal_file import JOURNAL
from engine.record.history import History, RunRecord
from engine.record.journal_copy import has_end, kept_files, kept_path, recorded_events
from engine.record.kept_results import keep_results
from engine.record.run_context import Setting
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision.state.shared import objects

if TYPE_CHECKING:
    from provision.aws.objects import Objects  # boto3 takes 0.1 s, and few have a bucket

FOLDER = "journals"
"""The folder of all journals, apart from the rest, so that a rule of the bucket can age them."""
_SETTING = "setting.json"
_LARGE = 8 << 20
"""The bytes above which it is said that they are written, because that may take a while."""
_FILE = re.compile(
    r"journal\.jsonl|journal-\d{15}\.jsonl(\.gz)?|metrics\.jsonl\.gz|setting\.json"
    r"|evidence/[A-Za-z0-9][A-Za-z0-9-]{0,62}/[A-Za-z0-9_][\w.-]{0,99}\.txt",
    re.ASCII,
)
"""The names that are taken from the bucket, those that gpuctl writes: they become paths here."""
_MOST_FILES = 2000
_MOST_FILE = 512 << 20
_MOST_RUN = 2 << 30
"""The most bytes of a run in the bucket: a journal has 1 GiB, its metrics half of one."""


def share_journals(store: "Objects", history: History, runs: Path, watcher: Watcher) -> None:
    """Write the journals of this machine that the bucket does not have.

    Those are of runs that are over, and end with the run's end. A lost run has no end.
    """
    prefix = store.bucket.key(FOLDER, "")
    known = set(store.keys(prefix))
    for run in history.runs():
        if not run.is_over or f"{prefix}{run.run_id}/{JOURNAL}" in known:
            continue
        try:
            if _is_kept(run, runs):
                _share(run, store, history, runs, watcher)
        except (RunError, StateError) as error:  # of this run's files: others are shared
            watcher.warn(f"the log of run {run.run_id} is not shared: {error}")


def fetch_journal(
    chosen: ChosenTarget, run: RunRecord, watcher: Watcher = LoggingWatcher()
) -> None:
    """Copy the journal of a run that is over to this machine, if only the bucket has it.

    The history then also has the run's tables, findings and setting. An error is a warning.
    """
    runs = chosen.runs
    if bucket_of(chosen.backend) is None or chosen.is_lab_down() or not run.is_over:
        return
    try:
        if _is_kept(run, runs):
            return
        store = objects(chosen.remembered())
        assert store is not None
        keys = store.keys(store.bucket.key(FOLDER, run.run_id, ""))
        if store.bucket.key(FOLDER, run.run_id, JOURNAL) in keys:
            watcher.announce(f"fetching the log of run {run.run_id} from {store.bucket.url}")
            _fetch(run.run_id, keys, store, runs)
    except GpuctlError as error:
        watcher.warn(f"the log of run {run.run_id} did not come from the bucket: {error}")


def _is_kept(run: RunRecord, runs: Path) -> bool:
    """Return whether this machine has all that anybody has of the run's journal."""
    is_there = kept_path(runs, run.run_id, JOURNAL).exists()
    return (run.is_lost and is_there) or has_end(runs, run.run_id)


def _share(
    run: RunRecord, store: "Objects", history: History, runs: Path, watcher: Watcher
) -> None:
    files = kept_files(runs, run.run_id)
    total = sum(path.stat().st_size for path in files if path.exists())
    if total > _LARGE:
        watcher.announce(f"writing {size(total)} of run {run.run_id} to {store.bucket.url}")
    folder, setting = kept_path(runs, run.run_id), history.setting(run.run_id)
    if setting is not None:
        key = store.bucket.key(FOLDER, run.run_id, _SETTING)
        with suppress(Changed):  # an earlier try, which was interrupted, has written it
            store.write(key, setting.model_dump_json(), None)
    for path in files:
        name = path.relative_to(folder).as_posix()
        try:
            store.write_file(store.bucket.key(FOLDER, run.run_id, name), path)
        except (FileNotFoundError, Changed):
            continue  # another gpuctl has compressed or removed it, or has written the object
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}", "") from error


def _fetch(run_id: str, keys: list[str], store: "Objects", runs: Path) -> None:
    """Put the run's files into its folder, the journal's first piece last, and its results too.

    They are read into a temporary folder first: a run that is damaged changes nothing here.
    """
    prefix = store.bucket.key(FOLDER, run_id, "")
    names = [key.removeprefix(prefix) for key in keys]
    names = [name for name in names if is_valid(name, BUCKET_KEY) and _FILE.fullmatch(name)]
    names.sort(key=lambda name: name == JOURNAL)
    if len(names) > _MOST_FILES:
        raise RunError(f"{store.url(prefix)} has more than {_MOST_FILES} objects", "")
    try:
        runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryDirectory(dir=runs, prefix=f".{run_id}-") as part, History(runs) as history:
            left = _MOST_RUN
            for name in names:
                path = kept_path(runs / part, run_id, *name.split("/"))
                try:
                    left -= store.read_file(prefix + name, path, min(_MOST_FILE, left))
                except Malformed as error:
                    raise RunError(f"{store.url(prefix + name)} is left out: {error}", "") from None
            for _ in recorded_events(runs / part, run_id):  # RunError if one cannot be read
                pass
            if _SETTING in names:
                text = kept_path(runs / part, run_id, _SETTING).read_bytes()
                try:
                    history.keep_setting(run_id, parse_foreign(Setting, text))
                except Malformed as error:
                    raise RunError(
                        f"{store.url(prefix + _SETTING)} is left out: {error}", ""
                    ) from None
                names.remove(_SETTING)
            for path in kept_files(runs, run_id):
                path.unlink(missing_ok=True)  # of a client that did not see the run's end
            for name in names:
                place = kept_path(runs, run_id, *name.split("/"))
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                kept_path(runs / part, run_id, *name.split("/")).replace(place)
            keep_results(run_id, runs, history)
    except OSError as error:
        where = error.filename or runs
        raise RunError(f"{where} cannot be written: {error.strerror}", "") from error
