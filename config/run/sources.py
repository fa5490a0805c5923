"""The user's files that a run sends to its nodes, without what its ignore files name.

`.gitignore` and `.gpuctlignore` are read as git reads them (pathspec). No symlink is followed.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pathspec import GitIgnoreSpec

from config.files import read_regular, require_regular

Kind = Literal["file", "folder", "link"]
_IGNORE_FILES = (".gitignore", ".gpuctlignore")
_LEFT_OUT = ".git"


@dataclass(frozen=True)
class Source:
    """A file, folder or link of the user's. `path` is its place in the working folder.

    `size` is 0 for folders and links; `target` is a link's text, else empty.
    """

    path: str
    local: Path
    kind: Kind
    mode: int
    size: int = 0
    target: str = ""


def leads_out(path: str, target: str) -> bool:
    """Return whether a link at `path` with the text `target` leads out of the working folder."""
    parts = list(PurePosixPath(path).parts[:-1])
    for part in PurePosixPath(target).parts:
        if part == "/" or (part == ".." and not parts):
            return True
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return False


@dataclass(frozen=True)
class _Rules:
    """The ignore files of one folder; `above` are those of the folders above it."""

    folder: str
    spec: GitIgnoreSpec
    above: "_Rules | None"

    def names(self, path: str) -> bool:
        """Return whether the path, with a final `/` for a folder, is left out."""
        verdict = self.spec.check_file(path.removeprefix(self.folder)).include
        if verdict is not None:
            return verdict
        return self.above is not None and self.above.names(path)


def folder_sources(folder: Path, place: str = "") -> Iterator[Source]:
    """Yield all that travels of a folder, each folder before its content.

    `place` is where the content goes in the working folder. Raises OSError for what cannot be read.
    """
    if place:
        yield Source(place, folder, "folder", stat.S_IMODE(folder.stat().st_mode))
    top = folder.resolve()
    yield from _walk(top, "/" if top == Path("/") else f"{top}/", place, _rules_above(top))


def file_source(file: Path, place: str) -> Source:
    """Return the source of one file that a run file names; a link to a file is that file.

    Raises OSError for what is no regular file.
    """
    status = file.stat()
    require_regular(file, status.st_mode)
    return Source(place, file, "file", stat.S_IMODE(status.st_mode), status.st_size)


def _walk(folder: Path, prefix: str, place: str, above: _Rules | None) -> Iterator[Source]:
    rules = _rules(folder, prefix, above)
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        is_folder = entry.is_dir(follow_symlinks=False)
        path = f"{prefix}{entry.name}" + ("/" if is_folder else "")
        if entry.name == _LEFT_OUT or (rules and rules.names(path)):
            continue
        to = f"{place}/{entry.name}" if place else entry.name
        about = entry.stat(follow_symlinks=False)
        mode, local = stat.S_IMODE(about.st_mode), Path(entry.path)
        if is_folder:
            yield Source(to, local, "folder", mode)
            yield from _walk(local, path, to, rules)
        elif entry.is_symlink():
            yield Source(to, local, "link", mode, target=str(local.readlink()))
        elif entry.is_file():
            yield Source(to, local, "file", mode, about.st_size)


def _rules(folder: Path, prefix: str, above: _Rules | None) -> _Rules | None:
    lines: list[str] = []
    for name in _IGNORE_FILES:
        path = folder / name
        if path.is_file():
            lines += read_regular(path).decode("utf-8", "surrogateescape").splitlines()
    return _Rules(prefix, GitIgnoreSpec.from_lines(lines), above) if lines else above


def _rules_above(folder: Path) -> _Rules | None:
    """Return the rules of the folders above, up to the one with `.git`; None outside of git."""
    chain: list[Path] = []
    for parent in (folder, *folder.parents):
        if parent != folder:
            chain.append(parent)
        if (parent / _LEFT_OUT).exists():
            break
    else:
        return None
    rules: _Rules | None = None
    for parent in reversed(chain):
        rules = _rules(parent, f"{str(parent).rstrip('/')}/", rules)
    return rules
