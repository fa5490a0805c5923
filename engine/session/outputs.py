"""Fetch the outputs of a run from its nodes, after the run's end.

The form of the stream is that of agent/node/outputs.py. Nodes are not trusted: a job is root on
them, so each path is checked, and no file is written through a link.

What a run saved in its cluster's shared storage is copied too. The head saves it before its nodes
power off with no client there (agent/head/save_to_shared.py).
"""

import asyncio
import gzip
import json
import os
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Literal

from config.errors import GpuctlError, NodeError, RunError
from config.event_loop import run_in_loop
from config.files import os_errors_as
from config.progress import Progress, Reporter
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.rotating_file import open_piece, pieces
from engine.contract.names import NOT_SAVED, RECORD
from engine.plan.remote_paths import run_paths, saved_folder
from engine.record.history import History
from engine.record.journal_copy import (
    EVIDENCE,
    Bound,
    evidence_folder,
    kept_path,
    recorded_events,
    samples_path,
)
from engine.record.kept_results import keep_results
from engine.record.metrics_record import LARGEST
from engine.record.outputs_folder import OUTPUTS, make_outputs_folder, outputs_folder
from engine.record.result import ResultCollector
from engine.record.run_errors import KnownRun
from engine.session.bundle import agent_bundle
from nodes.arrivals import Arrivals, refusal
from nodes.conversation import Conversation
from nodes.copy import copy_from
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node
from nodes.kept_connections import KeptConnections, connect

RESERVE = 1 << 30
"""Bytes of the client's disk that outputs leave free."""
STALL_S = 60
"""Seconds without a byte after which a node is given up: the cluster bills."""
_STAGE = "outputs"
_AT_ONCE = 4
_PIECE = 1 << 20
MOST_LIST = 16 << 20
"""Bytes of a node's list of outputs."""
MOST_OUTPUTS = 100_000
"""Outputs of a node: files, folders and links."""
MOST_DEPTH = 64
"""The parts of an output's path."""
_PACK = "pack them on the node (tar), and name the archive in `outputs`"
_FIELDS = 5


@dataclass(frozen=True)
class Fetched:
    """The outputs that came back: number of files, their bytes, the reason of each failure.

    `refused` has a line for each node of which something was left out.
    """

    folder: Path
    files: int
    size: int
    failures: tuple[str, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Item:
    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    target: str
    size: int


async def fetch_outputs(
    run: KnownRun,
    inventory: Inventory,
    folder: Path,
    report: Reporter,
    command: str | None = None,
) -> Fetched:
    """Copy the outputs of each node to `folder/rank-N`; a failing node does not stop the others.

    A node's outputs are written to `rank-N.part`, which is renamed when they are whole. `command`
    sends them, by default the agent's.
    """
    work = run_paths(inventory, run.run_id).work
    sends = command or agent_bundle().command(inventory, "outputs", work)
    by_name = {node.name: node for node in inventory.nodes}
    # Ranks are those of the run: `order` may have changed them.
    nodes = [
        by_name[node.name].model_copy(update={"rank": node.rank})
        for node in run.nodes
        if node.name in by_name
    ]
    unknown = tuple(
        f"cluster {inventory.cluster} has no node {node.name}, which the run names"
        for node in run.nodes
        if node.name not in by_name
    )

    async with connect(inventory) as connections:

        async def fetch(node: Node) -> tuple[int, int, list[str]]:
            fetched = await _fetch(connections, run, node, sends, folder / f"rank-{node.rank}")
            report(Progress(_STAGE, node.name, "done", f"{fetched[0]} files"))
            return fetched

        answers = await on_each(nodes, fetch, _AT_ONCE)
    failures = tuple(a.message for a in answers.values() if isinstance(a, GpuctlError))
    whole = [answer for answer in answers.values() if not isinstance(answer, GpuctlError)]
    files, size = sum(count for count, _, _ in whole), sum(size for _, size, _ in whole)
    names = {node.rank: node.name for node in nodes}
    refused = tuple(
        refusal(names[rank], answer[2]).message
        for rank, answer in answers.items()
        if not isinstance(answer, GpuctlError) and answer[2]
    )
    return Fetched(folder, files, size, (*unknown, *failures), refused)


async def _fetch(
    connections: KeptConnections, run: KnownRun, node: Node, command: str, to: Path
) -> tuple[int, int, list[str]]:
    """Fetch one node's outputs; return the number of files, their bytes, and what was refused."""
    async with connections.converse(node, command) as talk:
        await talk.write(json.dumps(run.outputs).encode() + b"\n")
        talk.end_input()
        async with asyncio.timeout(STALL_S):
            line = await _list_line(talk, node.name)
        if not line:
            return 0, 0, []  # the command failed: leaving the conversation raises its reason
        items = _items(line, node.name)
        files = [item for item in items if item.kind == "file"]
        size = sum(item.size for item in files)
        refused: list[str] = []
        if items:
            refused = await _write(talk, items, to, node.name)
    return len(files), size, refused


async def _list_line(talk: Conversation, node: str) -> bytes:
    """Return the node's list of outputs; NodeError if it has more than MOST_LIST bytes."""
    try:
        return await talk.line(MOST_LIST)
    except NodeError as error:
        most = MOST_LIST >> 20
        raise NodeError(
            f"{node} sent a list of outputs of more than {most} MiB; {_PACK}", ""
        ) from error


def _items(line: bytes, node: str) -> list[_Item]:
    """Return the items of the list; RunError for a path that leaves the folder.

    The list is bounded before it is parsed, so that a hostile one does not fill the memory.
    """
    if line.count(b",") > 2 * _FIELDS * MOST_OUTPUTS:
        raise _too_many(node)
    try:
        files = json.loads(line)["files"]
        if len(files) > MOST_OUTPUTS:
            raise _too_many(node)
        items = [_item(*fields) for fields in files]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise RunError(f"{node} sent no list of outputs", "") from None
    for item in items:
        parts = PurePosixPath(item.path).parts
        is_inside = parts and parts[0] != "/" and ".." not in parts
        if not is_inside or not _is_name(item.path) or not _is_name(item.target):
            raise RunError(f"{node} sent an output with the path {_shown(item.path)}", "")
        if len(parts) > MOST_DEPTH:
            raise RunError(
                f"{node} sent an output whose path has {len(parts)} parts, at most {MOST_DEPTH} are"
                f" allowed: {_shown(item.path)}",
                "",
            )
    return items


def _item(path: object, kind: object, mode: object, target: object, size: object) -> _Item:
    """Return the item of five fields; ValueError for a field of another type."""
    texts = isinstance(path, str) and isinstance(target, str)
    if not texts or type(mode) is not int or type(size) is not int or not 0 <= size < 1 << 60:
        raise ValueError(path)
    if kind not in ("file", "folder", "link"):
        raise ValueError(kind)
    return _Item(str(path), kind, mode, str(target), size)


def _is_name(text: str) -> bool:
    """Return whether the file system can have a file or a link of this text."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _too_many(node: str) -> RunError:
    return RunError(f"{node} sent a list of more than {MOST_OUTPUTS} outputs; {_PACK}", "")


def _shown(path: str) -> str:
    """Return the path as a message has it, which may be of any length."""
    return repr(path if len(path) <= 100 else f"{path[:97]}...")


def _check_room(items: list[_Item], folder: Path, node: str) -> None:
    """Raise RunError if the disk has no room for the files, and for what it keeps free."""
    size = sum(item.size for item in items if item.kind == "file")
    free = shutil.disk_usage(folder).free - RESERVE
    if size > free:
        raise RunError(
            f"the outputs of {node} have {size >> 20} MiB, the disk of {folder} has room for"
            f" {max(free, 0) >> 20} MiB",
            "",
        )


async def _write(talk: Conversation, items: list[_Item], to: Path, node: str) -> list[str]:
    """Write the outputs that arrive; return the reason for each that was refused.

    After an error `rank-N.part` exists: without one the outputs would count as whole.
    """
    part = to.with_name(f"{to.name}.part")
    arrivals = Arrivals(part, most_mode=0o700)
    with os_errors_as(RunError, f"the outputs of {node} cannot be written to {part}"):
        make_outputs_folder(to.parent)
        shutil.rmtree(part, ignore_errors=True)  # of an earlier attempt
        part.mkdir(mode=0o700)
        _check_room(items, to.parent, node)
        for item in items:
            path = PurePosixPath(item.path)
            if item.kind == "folder":
                arrivals.add_folder(path)
            elif item.kind == "file":
                with arrivals.create_file(path, item.mode) as file:
                    await _write_file(talk, file, item, node)
            else:
                arrivals.add_link(path, item.target)
        arrivals.finish()
        shutil.rmtree(to, ignore_errors=True)  # if that fails, the renaming does
        part.rename(to)
    return arrivals.refused


async def _write_file(talk: Conversation, file: IO[bytes], item: _Item, node: str) -> None:
    left = item.size
    while left:
        async with asyncio.timeout(STALL_S):
            data = await talk.read(min(left, _PIECE))
        if not data:
            raise NodeError(f"{node} ended before {item.path} was whole", "")
        file.write(data)
        left -= len(data)


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
            error = run_in_loop(copy_from(inventory, [head], saved, f"{part}/"))[head.rank]
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
