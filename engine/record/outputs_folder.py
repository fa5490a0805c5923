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


def have_come_back(folder: Path) -> bool:
    """Return whether the outputs in the folder are whole: `rank-N.part` is an unfinished copy."""
    return folder.exists() and not any(folder.glob("*.part"))


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
    try:
        why = _refusal(parent)
    except OSError as error:  # a folder above it is another person's, or a name is too long
        why = str(error.strerror)
    if why:
        raise InputError(
            f"outputs cannot come back to {parent}: {why}", "name another folder with --outputs DIR"
        )


def _refusal(parent: Path) -> str:
    """Return why nothing can be written to the folder; empty if it can."""
    nearest = next(path for path in (parent, *parent.parents) if path.exists() or path.is_symlink())
    if not nearest.is_dir():
        return f"{nearest}: it is not a folder"
    can_write = os.access(nearest, os.W_OK | os.X_OK)
    return "" if can_write else f"{nearest}: you may not write there"


def make_outputs_folder(folder: Path) -> None:
    """Make the folder, readable for its owner alone; git and gpuctl's `workdir` leave it out."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
