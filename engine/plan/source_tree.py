"""The user's files as a tree: paths, modes and hashes, computed once when a run starts."""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import InputError
from config.files import LARGEST_FILE, open_regular, os_errors_as
from config.run.sources import Source

Entry = tuple[str, str, int, str, int]
"""Path, kind (file, folder, link), mode, hash or target, size: as in agent/node/code_store.py."""
_PIECE = 1 << 20


@dataclass(frozen=True)
class Tree:
    """The files of a run, sorted by path. `local` has a file of the user's for each hash.

    `scripts` are the texts that the run's commands name, by path (engine/plan/named_scripts.py).
    """

    entries: tuple[Entry, ...]
    local: Mapping[str, Path]
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The hash of paths, modes and content."""
        return hashlib.sha256(json.dumps(self.entries).encode()).hexdigest()

    @property
    def files(self) -> tuple[Entry, ...]:
        """The entries that are files."""
        return tuple(entry for entry in self.entries if entry[1] == "file")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for *_, size in self.files)


def tree_of(sources: Iterable[Source]) -> Tree:
    """Read and hash all files; InputError for one that cannot be read."""
    entries: list[Entry] = []
    local: dict[str, Path] = {}
    for source in sources:
        content = source.target
        size = source.size
        if source.kind == "file":
            problem = f"{source.local} cannot be read"
            with os_errors_as(InputError, problem, "make it readable"):
                content, size = _hash(source)
            local[content] = source.local
        entries.append((source.path, source.kind, source.mode, content, size))
    return Tree(tuple(entries), local)


def _hash(source: Source) -> tuple[str, int]:
    """Return the sha256 of a file and how many bytes were read.

    A small file is read at once: hashlib.file_digest fills 256 KiB with zeros for each, which
    costs as much as the hashes of 10,000 of them.
    """
    with os.fdopen(open_regular(source.local), "rb", buffering=0) as file:
        start = file.read(_PIECE) or b""  # files of /proc may have nothing yet
        digest, size = hashlib.sha256(start), len(start)
        while data := file.read(_PIECE):
            digest.update(data)
            size += len(data)
            if size > source.size + LARGEST_FILE:  # some files of /proc have no end
                raise OSError(errno.EFBIG, "it grows while it is read", str(source.local))
    return digest.hexdigest(), size
