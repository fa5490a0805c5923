"""The histories of a team: each machine's runs are in the bucket, for `gpuctl ps` of all.

A run's end is written after its journal (`operations/shared_journals.py`). Whoever may write in
the bucket may have written any object: each is read into a type, and a wrong one is a warning.
"""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from config.bucket import Changed, bucket_of
from config.errors import GpuctlError
from config.foreign import Malformed, parse_foreign
from config.identifiers import RUN_ID, is_valid
from config.target import Target
from engine.record.history import History, RunRecord
from operations.chosen_target import ChosenTarget
from operations.shared_journals import share_journals
from operations.watcher import LoggingWatcher, Watcher
from provision.state.shared import objects

if TYPE_CHECKING:
    from provision.aws.objects import Objects  # boto3 takes 0.1 s, and few have a bucket

_NAMED = 20
"""The wrong objects that are named, each in a line; of more, the number is said."""
SHARE_S = 120.0
"""Seconds that the end of a run waits for the bucket."""
_AHEAD = timedelta(days=1)
"""How far a colleague's clock may be ahead of this machine's."""


def share_runs(chosen: ChosenTarget, watcher: Watcher = LoggingWatcher()) -> None:
    """Add this machine's runs to the bucket and those in it to the history; nothing without one.

    Of runs that are over the bucket gets the journals, too. An error is a warning: the runs of this
    machine are known anyway.
    """
    if bucket_of(chosen.backend) is None or chosen.is_lab_down():
        return
    try:
        _exchange(chosen.remembered(), watcher)
    except GpuctlError as error:
        watcher.warn(f"the runs of others are not known: {error}")


def share_ended_run(
    chosen: ChosenTarget, *, limit_s: float = SHARE_S, watcher: Watcher = LoggingWatcher()
) -> None:
    """Do what `share_runs` does at the end of a run, whose exit code and end nothing here changes.

    Whatever fails is a warning, Ctrl-C too, and so is a bucket that needs more than `limit_s`: the
    next `gpuctl ps` shares what is missing.
    """
    errors: list[BaseException] = []
    sharing = threading.Thread(
        target=_share, args=(chosen, watcher, errors), daemon=True, name="share"
    )
    try:
        sharing.start()
        sharing.join(limit_s)
    except KeyboardInterrupt as error:
        errors.append(error)
    if errors and isinstance(errors[0], KeyboardInterrupt):
        why = "interrupted"
    elif errors:
        why = f"{type(errors[0]).__name__}: {errors[0]}"
    elif sharing.is_alive():
        why = f"{chosen.backend} did not take it within {limit_s:g} s"
    else:
        return
    watcher.warn(f"the run is not shared yet: {why}; the next `gpuctl ps` shares it")


def _share(chosen: ChosenTarget, watcher: Watcher, errors: list[BaseException]) -> None:
    try:
        share_runs(chosen, watcher)
    except BaseException as error:
        errors.append(error)


def _exchange(target: Target, watcher: Watcher) -> None:
    """Exchange runs. Each has up to two objects, which never change: its begin and its end."""
    store = objects(target)
    assert store is not None
    prefix = store.bucket.key("runs", "")
    known = {key.removeprefix(prefix) for key in store.keys(prefix)}
    wrong: list[str] = []
    with History(target.runs) as history:
        runs = {run.run_id: run for run in history.runs()}
        ours = {f"{run.run_id}/{_part(run)}": run for run in runs.values()}
        over = {run.run_id for run in runs.values() if run.is_over}
        # Ends first: the beginning of a run that is over is not read.
        for name in sorted(known - ours.keys(), key=lambda name: (name.endswith("/begin"), name)):
            if name.endswith("/begin") and name.removesuffix("/begin") in over:
                continue
            try:
                run = _shared_run(store, prefix, name)
                if run is not None:
                    _check_same(run, runs.get(run.run_id))
                    history.adopt(run)
                    over |= {run.run_id} if run.is_over else set()
            except ValueError as error:
                wrong.append(f"{store.url(prefix + name)} is left out: {error}")
        _warn(wrong, store, watcher)
        new = sorted(ours.keys() - known)
        # Begins first: a colleague can attach although a journal of another run is not shared.
        _write(store, prefix, {name: ours[name] for name in new if name.endswith("/begin")})
        share_journals(store, history, target.runs, watcher)
        _write(store, prefix, {name: ours[name] for name in new if name.endswith("/end")})


def _write(store: "Objects", prefix: str, runs: Mapping[str, RunRecord]) -> None:
    """Write the runs as objects of these names."""
    for name, run in runs.items():
        try:
            store.write(prefix + name, run.model_dump_json(), None)
        except Changed:
            continue  # a colleague who follows the run has written it meanwhile


def _shared_run(store: "Objects", prefix: str, name: str) -> RunRecord | None:
    """Return the run of an object; None if it was removed meanwhile. Malformed for a wrong one."""
    run_id, _, part = name.partition("/")
    if not is_valid(run_id, RUN_ID) or part not in ("begin", "end"):
        raise Malformed("its key is not `RUN/begin` or `RUN/end` of a run's id")
    stored = store.read(prefix + name)
    if stored is None:
        return None
    run = parse_foreign(RunRecord, stored.text)
    if run.run_id != run_id:
        raise Malformed(f"it is of run {run.run_id}")
    if _part(run) != part:
        raise Malformed(f"its status is {run.status}")
    if run.is_over and (run.exit_code is None or run.ended is None):
        raise Malformed("it is over, and has no exit code or no end")
    if run.started > datetime.now(UTC) + _AHEAD:
        raise Malformed(f"it has started at {run.started:%Y-%m-%d %H:%M} UTC, which is to come")
    return run


def _check_same(run: RunRecord, known: RunRecord | None) -> None:
    """Raise Malformed if this machine knows the run as one of another cluster or name."""
    if known is not None and (run.cluster, run.name) != (known.cluster, known.name):
        raise Malformed(
            f"it is {run.name} on cluster {run.cluster}, this machine knows the run as"
            f" {known.name} on cluster {known.cluster}"
        )


def _warn(wrong: list[str], store: "Objects", watcher: Watcher) -> None:
    for line in wrong[:_NAMED]:
        watcher.warn(line)
    if len(wrong) > _NAMED:
        watcher.warn(f"{len(wrong) - _NAMED} more objects of {store.bucket.url} are left out")


def _part(run: RunRecord) -> str:
    return "end" if run.is_over else "begin"
