"""Copy what a run saved in its cluster's shared storage to this machine.

The head saves it before its nodes power off with no client there (agent/head/save_to_shared.py).
"""

import asyncio
import gzip
import shutil
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from config.errors import RunError
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.rotating_file import open_piece, pieces
from engine.contract.names import NOT_SAVED, RECORD
from engine.plan.remote_paths import saved_folder
from engine.record.event_budget import EVIDENCE, Bound
from engine.record.history import History
from engine.record.journal_copy import (
    evidence_folder,
    kept_path,
    recorded_events,
    samples_path,
)
from engine.record.kept_results import keep_results
from engine.record.metrics_record import LARGEST
from engine.record.outputs_folder import OUTPUTS, make_outputs_folder, outputs_folder
from engine.record.result import ResultCollector
from nodes.copy import copy_from
from nodes.inventory import Inventory

_CHUNK = 1 << 20


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


def take_saved(
    saved: Path,
    run_id: str,
    runs: Path,
    most_samples: int = LARGEST,
    most_evidence: Bound = EVIDENCE,
) -> tuple[str, ...] | None:
    """Put the files into the run's folder; return what is missing, None without a journal.

    A job was root on the nodes, so links are not taken for files, and bounds apply: the bytes of
    samples, unpacked, and the files of evidence.
    """
    for path in saved.rglob("*"):
        if path.is_symlink() and saved / OUTPUTS not in path.parents:
            path.unlink()
    if not (saved / JOURNAL).exists():
        return None
    left_out = _move(saved, run_id, runs, most_samples, most_evidence)
    collector = ResultCollector()
    for event in recorded_events(runs, run_id):
        collector.see(event)
    result = collector.result()
    if result is not None:
        with History(runs) as history:
            keep_results(run_id, runs, history)
            history.finish(result)
    return (*_not_saved(saved / NOT_SAVED), *left_out)


def _not_saved(path: Path) -> tuple[str, ...]:
    """Return the lines of the nodes about what they did not save."""
    if not path.is_file():
        return ()
    with path.open("rb") as file:
        return tuple(file.read(_CHUNK).decode(errors="replace").splitlines())


def _move(
    saved: Path, run_id: str, runs: Path, most_samples: int, most_evidence: Bound
) -> list[str]:
    """Make the files those of this machine; the journal's first piece comes last.

    Return what is left out because it is over its bound, a line each.
    """
    left_out = []
    folder = kept_path(runs, run_id)
    folder.mkdir(exist_ok=True, mode=0o700)
    for piece in pieces(folder / JOURNAL):
        piece.path.unlink()  # a part of it, from before the client ended
    if not _pack_samples(saved, samples_path(runs, run_id), most_samples):
        left_out.append(f"metrics: they have more than {most_samples >> 20} MiB, or are damaged")
    evidence = saved / evidence_folder(runs, run_id).name
    files = [path for path in evidence.rglob("*") if path.is_file()]
    number, size = most_evidence
    if len(files) > number or sum(path.stat().st_size for path in files) > size:
        shutil.rmtree(evidence)
        left_out.append(f"evidence: it has more than {number:,} files or {size >> 20} MiB")
    kept = evidence_folder(runs, run_id)
    if evidence.is_dir() and not kept.exists():
        evidence.rename(kept)
    outputs = outputs_folder(runs, run_id)
    if (saved / OUTPUTS).is_dir() and not outputs.exists():
        make_outputs_folder(outputs)
        for path in (saved / OUTPUTS).iterdir():
            shutil.move(path, outputs)
    for piece in reversed(pieces(saved / JOURNAL)):
        piece.path.rename(folder / piece.path.name)
    return left_out


def _pack_samples(saved: Path, path: Path, most: int) -> bool:
    """Write the pieces' samples to the path; return whether all of them are there.

    At most `most` bytes are unpacked: a small piece may have a thousand times its size.
    """
    left = most
    with gzip.open(path, "wb", compresslevel=6) as samples:
        for piece in pieces(saved / RECORD):
            try:
                with open_piece(piece.path) as file:
                    while data := file.read(min(_CHUNK, left + 1)):
                        samples.write(data[:left])
                        if len(data) > left:
                            return False
                        left -= len(data)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return False
    return True
