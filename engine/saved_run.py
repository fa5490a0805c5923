"""Copy what a run saved in its cluster's shared storage to this machine.

The head saves it before its nodes power off with no client there (engine/agent/saving.py).
"""

import asyncio
import gzip
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from config.errors import RunError
from engine.agent.control import JOURNAL
from engine.agent.piece_file import open_piece, pieces
from engine.agent.samples import RECORD
from engine.agent.saving import NOT_SAVED
from engine.history import History
from engine.journal_copy import (
    OUTPUTS,
    evidence_folder,
    kept_path,
    outputs_folder,
    recorded_events,
    samples_path,
)
from engine.kept_results import keep_results
from engine.places import saved_folder
from engine.result import ResultCollector
from nodes.copy import copy_from
from nodes.inventory import Inventory


def fetch_saved(run_id: str, inventory: Inventory, runs: Path) -> tuple[str, ...] | None:
    """Copy what the run has saved to this machine, and store its result in the history.

    Returns what the nodes did not save, a line each; None if the cluster has no shared storage, or
    nothing of the run is there. Raises NodeError if the head does not answer, RunError if the files
    cannot be written here.
    """
    saved = saved_folder(run_id, inventory.shared)
    if not saved:
        return None
    head = inventory.nodes[0]
    try:
        runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryDirectory(dir=runs, prefix=f".{run_id}-") as part:
            error = asyncio.run(copy_from(inventory, [head], saved, f"{part}/"))[head.rank]
            if error is not None:
                if f"{saved} does not exist" in str(error):
                    return None
                raise error
            return take_saved(Path(part, run_id), run_id, runs)
    except OSError as error:
        raise RunError(f"{error.filename} cannot be written: {error.strerror}", "") from error


def take_saved(saved: Path, run_id: str, runs: Path) -> tuple[str, ...] | None:
    """Put the files into the run's folder; return what is missing, None without a journal.

    A job was root on the nodes, so links are not taken for files.
    """
    for path in saved.rglob("*"):
        if path.is_symlink() and saved / OUTPUTS not in path.parents:
            path.unlink()
    if not (saved / JOURNAL).exists():
        return None
    _move(saved, run_id, runs)
    collector = ResultCollector()
    for event in recorded_events(runs, run_id):
        collector.see(event)
    result, missing = collector.result(), saved / NOT_SAVED
    if result is not None:
        with History(runs) as history:
            keep_results(run_id, runs, history)
            history.finish(result)
    return tuple(missing.read_text(errors="replace").splitlines()) if missing.exists() else ()


def _move(saved: Path, run_id: str, runs: Path) -> None:
    """Make the files those of this machine; the journal's first piece comes last."""
    folder = kept_path(runs, run_id)
    folder.mkdir(exist_ok=True, mode=0o700)
    for piece in pieces(folder / JOURNAL):
        piece.path.unlink()  # a part of it, from before the client ended
    with gzip.open(samples_path(runs, run_id), "wb", compresslevel=6) as samples:
        for piece in pieces(saved / RECORD):
            with open_piece(piece.path) as file:
                shutil.copyfileobj(file, samples)
    for place in (outputs_folder(runs, run_id), evidence_folder(runs, run_id)):
        if (saved / place.name).is_dir() and not place.exists():
            (saved / place.name).rename(place)
    for piece in reversed(pieces(saved / JOURNAL)):
        piece.path.rename(folder / piece.path.name)
