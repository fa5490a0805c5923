"""The histories of a team: each machine's runs are in the bucket, for `gpuctl ps` of all.

A run's end is written after its journal (`cli/shared_journals.py`).
"""

from typing import TYPE_CHECKING

from config.errors import GpuctlError

if TYPE_CHECKING:
    from cli.chosen_target import ChosenTarget
    from cli.output import Output
    from config.target import Target
    from engine.history import RunRecord


def share_runs(here: "ChosenTarget", out: "Output") -> None:
    """Add this machine's runs to the bucket and those in it to the history; nothing without one.

    Of runs that are over the bucket gets the journals, too. An error is a warning: the runs of this
    machine are known anyway.
    """
    from config.bucket import bucket_of

    if bucket_of(here.backend) is None or here.is_lab_down():
        return
    try:
        _exchange(here.remembered(), out)
    except GpuctlError as error:
        out.warn(f"the runs of others are not known: {error}")


def _exchange(target: "Target", out: "Output") -> None:
    """Exchange runs. Each has up to two objects, which never change: its begin and its end."""
    from cli.shared_journals import share_journals
    from config.bucket import Changed
    from engine.history import History, RunRecord
    from provision.records.shared import objects

    there = objects(target)
    assert there is not None
    prefix = there.bucket.key("runs", "")
    known = {key.removeprefix(prefix) for key in there.keys(prefix)}
    with History(target.runs) as history:
        ours = {f"{run.run_id}/{_part(run)}": run for run in history.runs()}
        for name in known - ours.keys():
            is_superseded = (
                name.endswith("/begin") and name.replace("/begin", "/end") in known | ours.keys()
            )
            stored = None if is_superseded else there.read(prefix + name)
            if stored is not None:
                history.adopt(RunRecord.model_validate_json(stored.text))
        share_journals(there, history, target.runs, out)
        for name in ours.keys() - known:
            try:
                there.write(prefix + name, ours[name].model_dump_json(), None)
            except Changed:
                continue  # a colleague who follows the run has written it meanwhile


def _part(run: "RunRecord") -> str:
    return "end" if run.is_over else "begin"
