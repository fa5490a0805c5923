"""The outputs of a run on its node: files of the working folder, written to stdout.

First one line: `{"files": [[path, kind, mode, target, size], …]}`; then the bytes of the files in
that order, without anything between them. No link is followed.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

_PIECE = 1 << 20


def send(folder: Path) -> int:
    """Write the files that the patterns on stdin match, a JSON list; return 0, or 1 on failure."""
    patterns = json.loads(sys.stdin.buffer.readline())
    files = matches(folder, patterns)
    out = sys.stdout.buffer
    out.write(json.dumps({"files": files}).encode() + b"\n")
    for path, kind, _, _, size in files:
        if kind == "file":
            with (folder / path).open("rb") as file:
                if not _copy(file, out, size):
                    sys.stderr.write(f"{path} changed while it was sent\n")
                    return 1
    out.flush()
    return 0


def matches(folder: Path, patterns: list[str]) -> list[list[Any]]:
    """Return what the patterns match, sorted: [path, kind, mode, target, size], each path once.

    A folder is returned with all that is in it.
    """
    entries: dict[str, list[Any]] = {}
    if folder.is_dir():
        for pattern in patterns:
            for path in folder.glob("*" if pattern in (".", "./") else pattern.rstrip("/")):
                _add(entries, folder, path)
                if path.is_dir() and not path.is_symlink():
                    for parent, folders, files in os.walk(path):
                        for name in (*folders, *files):
                            _add(entries, folder, Path(parent, name))
    return [entries[path] for path in sorted(entries)]


def _add(entries: dict[str, list[Any]], folder: Path, path: Path) -> None:
    about, name = path.lstat(), str(path.relative_to(folder))
    mode = stat.S_IMODE(about.st_mode)
    if stat.S_ISREG(about.st_mode):
        entries[name] = [name, "file", mode, "", about.st_size]
    elif stat.S_ISDIR(about.st_mode) and name != ".":
        entries[name] = [name, "folder", mode, "", 0]
    elif stat.S_ISLNK(about.st_mode):
        target = os.readlink(path)  # noqa: PTH115
        entries[name] = [name, "link", mode, target, 0]


def _copy(source: Any, to: Any, size: int) -> bool:
    """Copy exactly `size` bytes; return whether there were as many."""
    while size:
        data = source.read(min(size, _PIECE))
        if not data:
            return False
        to.write(data)
        size -= len(data)
    return True
