"""The folder of this machine for a run's outputs: by default `outputs/RUN` next to the run file.

Each run has a separate folder, so no run overwrites the outputs of another.
"""

import json
import os
from pathlib import Path

from config.errors import InputError
from config.files import write_whole
from engine.record.journal_copy import kept_path

OUTPUTS = "outputs"
"""The folder next to a run file with the outputs of its runs."""
_CHOICE = "outputs-folder.json"


def outputs_folder(runs: Path, run_id: str) -> Path:
    """Return the folder for the run's outputs; it exists only if some came back.

    `choose_outputs` chooses it. Without a choice it is `outputs/RUN` in the current folder: the run
    file of another machine's run is not on this one.
    """
    try:
        return Path(json.loads(kept_path(runs, run_id, _CHOICE).read_bytes()))
    except FileNotFoundError:
        return Path.cwd() / OUTPUTS / run_id


def choose_outputs(runs: Path, run_id: str, parent: Path) -> None:
    """Choose that the run's outputs come back to `parent/RUN`.

    InputError if nothing can be written there, or if they have come back to another folder.
    """
    folder, earlier = parent / run_id, outputs_folder(runs, run_id)
    if earlier == folder and earlier.exists():
        return
    check_outputs(parent)
    if earlier.exists():
        raise InputError(
            f"the outputs of run {run_id} are in {earlier} already", "copy or move them from there"
        )
    write_whole(kept_path(runs, run_id, _CHOICE), json.dumps(str(folder)))


def check_outputs(parent: Path) -> None:
    """Raise InputError if no outputs can be written to the folder, which need not exist."""
    nearest = next(path for path in (parent, *parent.parents) if path.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return
    why = "you may not write there" if nearest.is_dir() else "it is not a folder"
    raise InputError(
        f"outputs cannot come back to {parent}: {nearest}: {why}",
        "name another folder with --outputs DIR",
    )


def make_outputs_folder(folder: Path) -> None:
    """Make the folder, readable for its owner alone; git and gpuctl's `workdir` leave it out."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
