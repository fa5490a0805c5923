"""Trees of code on a node: received once, passed on to other nodes, copied into each run.

A tree is a folder `tree-HASH` next to the runs. It has the tree's files, each named by its sha256,
and ENTRIES, the list of its paths. A tree is written aside and renamed, so it is always whole.

The sender writes one line, the header: `{"tree": HASH, "entries": [[path, kind, mode, blob, size],
…], "node": NAME, "onward": [{"name", "private_ip"}, …]}`. The receiver answers `missing`, with the
blobs that no tree of its node has. The sender writes their bytes in that order, without anything
between them, because the header has their sizes. The receiver passes the tree on to the nodes in
`onward`, and writes a line `received` or `failed` for itself and each of them. A sender that only
wants the tree passed on to other nodes leaves `entries` out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from engine.agent.journal.locks import locked, protect_folder
from engine.agent.journal.run_folders import TREE, mark_used
from engine.agent.link.ssh_multiplexing import ssh_to
from engine.agent.program import receive_agent, this_file

ENTRIES = "entries.json"
FANOUT = 4
"""Nodes to which each node passes a tree on: a node's line has less to carry than all copies."""
_PIECE = 1 << 20

Message = dict[str, Any]
_lock = threading.Lock()


def receive(runs: Path) -> int:
    """Receive a tree from stdin into the folder `runs`, and pass it on.

    Return 0 also after a failure, which a line on stdout reports.
    """
    header = json.loads(sys.stdin.buffer.readline())
    node = header["node"]
    try:
        runs.mkdir(mode=0o755, parents=True, exist_ok=True)
        if "entries" not in header:
            listed = (runs / f"{TREE}{header['tree']}" / ENTRIES).read_text(encoding="utf-8")
            header["entries"] = json.loads(listed)
        _take(runs, header, sys.stdin.buffer)
    except (OSError, EOFError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        _answer({"kind": "failed", "node": node, "reason": reason})
        return 0
    _answer({"kind": "received", "node": node})
    groups = [header["onward"][first::FANOUT] for first in range(FANOUT)]
    threads = [
        threading.Thread(target=_pass_on, args=(runs, this_file(), header, group))
        for group in groups
        if group
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def lay_out(tree: Path, folder: Path) -> None:
    """Copy the tree's files to their paths below `folder`.

    They are copies and not links: a job that writes to a file must not change the tree.
    """
    protect_folder(tree)
    mark_used(tree)
    folders = []
    for path, kind, mode, blob, _ in json.loads((tree / ENTRIES).read_text(encoding="utf-8")):
        place = str(folder / path)
        if kind == "folder":
            os.mkdir(place)  # noqa: PTH102  pathlib doubles the time of 10,000 files
            folders.append((place, mode))
        elif kind == "link":
            os.symlink(blob, place)  # noqa: PTH211
        else:
            shutil.copyfile(f"{tree}/{blob}", place)
            os.chmod(place, mode)  # noqa: PTH101
    for place, mode in reversed(folders):  # a folder without `w` gets its mode when it is full
        os.chmod(place, mode)  # noqa: PTH101


def blobs(entries: Iterable[Any]) -> dict[str, int]:
    """Return the size of each blob of the entries, in their order."""
    return {blob: size for _, kind, _, blob, size in entries if kind == "file"}


def _take(runs: Path, header: Message, stream: BinaryIO) -> None:
    """Create the tree, if it does not exist, from earlier trees and the stream."""
    tree = runs / f"{TREE}{header['tree']}"
    if tree.is_dir():
        mark_used(tree)  # the budget keeps what was used a short time ago
        _answer({"kind": "missing", "blobs": []})
        return
    sizes = blobs(header["entries"])
    with locked(runs):
        part = Path(tempfile.mkdtemp(prefix=f".{tree.name[:20]}-", dir=runs))
        protect_folder(part)  # to this process's end, however long the sender takes
    try:
        missing = _link_known(runs, part, sizes)
        _answer({"kind": "missing", "blobs": missing})
        for blob in missing:
            _write(part / blob, stream, blob, sizes[blob])
        (part / ENTRIES).write_text(json.dumps(header["entries"]), encoding="utf-8")
        part.chmod(0o755)
        mark_used(part)
        try:
            part.rename(tree)
        except OSError:
            if not tree.is_dir():  # else another sender was first
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)  # it exists only after an error; the budget has it


def _link_known(runs: Path, part: Path, sizes: dict[str, int]) -> list[str]:
    """Link the blobs that other trees have into `part`; return the others."""
    known = {
        entry.name: entry.path
        for tree in runs.glob(f"{TREE}*")
        for entry in os.scandir(tree)
        if entry.name in sizes
    }
    missing = []
    for blob in sizes:
        try:
            os.link(known[blob], part / blob)
        except (KeyError, OSError):  # no tree has it, or not any more
            missing.append(blob)
    return missing


def _write(path: Path, stream: BinaryIO, blob: str, size: int) -> None:
    """Write the next `size` bytes of the stream; ValueError if they are not the blob's."""
    digest, left = hashlib.sha256(), size
    with path.open("wb") as file:
        while left:
            data = stream.read(min(left, _PIECE))
            if not data:
                raise EOFError("the sender ended before all files were sent")
            digest.update(data)
            file.write(data)
            left -= len(data)
    if digest.hexdigest() != blob:
        raise ValueError("a file changed while it was sent")


def _pass_on(runs: Path, agent: Path, header: Message, group: list[Message]) -> None:
    """Send the tree to the first node of the group, which passes it on to the others."""
    child, *rest = group
    reported = False
    with tempfile.TemporaryFile() as complaints:
        try:
            process = _start(child, runs, agent, complaints)
        except OSError as error:
            _answer({"kind": "failed", "node": child["name"], "reason": str(error)})
            return
        assert process.stdin is not None
        assert process.stdout is not None
        line = json.dumps({**header, "node": child["name"], "onward": rest}).encode() + b"\n"
        # If the child fails early it reads no more; its answer has the reason.
        with contextlib.suppress(OSError), process.stdin as stdin:
            stdin.write(_agent_archive(agent) + line)
            stdin.flush()
            for answer in map(_message, process.stdout):
                if answer.get("kind") == "missing":
                    _send(runs / f"{TREE}{header['tree']}", answer["blobs"], stdin)
                    break
                reported = reported or _relay(answer, child)
        for answer in map(_message, process.stdout):
            reported = _relay(answer, child) or reported
        code = process.wait()
        process.stdout.close()
        if not reported:
            complaints.seek(0)
            lines = complaints.read().decode("utf-8", "replace").strip().splitlines()
            reason = lines[-1] if lines else f"the connection ended with {code}"
            _answer({"kind": "failed", "node": child["name"], "reason": reason})


def _start(
    child: Message, runs: Path, agent: Path, complaints: BinaryIO | Any
) -> subprocess.Popen[bytes]:
    program = shlex.quote(str(agent / "__main__.py"))
    # The line end is behind words that ~/.bashrc prints without one.
    command = (
        f"echo && umask 022 && {receive_agent(str(agent), _agent_archive(agent))}"
        f" && exec python3 -IS {program} receive {shlex.quote(str(runs))}"
    )
    return subprocess.Popen(
        ssh_to(child["private_ip"], command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
    )


def _send(tree: Path, missing: list[str], to: Any) -> None:
    for blob in missing:
        with (tree / blob).open("rb") as file:
            shutil.copyfileobj(file, to, _PIECE)


def _relay(answer: Message, child: Message) -> bool:
    """Pass on a node's answer; return whether it is the child's own."""
    if answer.get("kind") not in ("received", "failed"):
        return False
    _answer(answer)
    return bool(answer["node"] == child["name"])


def _message(line: bytes) -> Message:
    """Return a line as a message; an empty one for words of a login."""
    with contextlib.suppress(ValueError):  # words of a login
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return {}


def _answer(message: Message) -> None:
    with _lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _agent_archive(agent: Path) -> bytes:
    """Return this agent as an archive; the same bytes at every call."""
    with _lock:
        if agent not in _archives:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
                for path in sorted(agent.rglob("*.py")):
                    archive.writestr(
                        zipfile.ZipInfo(str(path.relative_to(agent))), path.read_bytes()
                    )
            _archives[agent] = buffer.getvalue()
        return _archives[agent]


_archives: dict[Path, bytes] = {}
