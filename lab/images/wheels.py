"""Wheels that were built from source, kept in the cache: an image made again needs no compiler.

A set of wheels is a folder. Its name has a digest of what decides how they are built, and one of
what is in them, so that a set of which a part is missing or damaged is never installed.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from lab.places import images


def kept_wheels(
    parts: tuple[str, ...], scratch: Path, build: Callable[[Path], None]
) -> tuple[Path, ...]:
    """Return the wheels that `parts` decide from the cache, sorted; `build` them when it has none.

    `build` is given an empty folder in `scratch`, which must be on the file system of the cache.
    """
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    store = images() / "wheels"
    store.mkdir(parents=True, exist_ok=True)
    for kept in store.glob(f"{key}-*"):
        if kept.name == f"{key}-{_digest(kept)}":
            return _wheels(kept)
        shutil.rmtree(kept)
    made = scratch / "wheels"
    made.mkdir()
    build(made)
    return _wheels(made.rename(store / f"{key}-{_digest(made)}"))


def _wheels(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.whl")))


def _digest(folder: Path) -> str:
    """Return a digest of the names and contents of the folder's wheels."""
    digest = hashlib.sha256()
    for wheel in _wheels(folder):
        content = hashlib.sha256(wheel.read_bytes()).hexdigest()
        digest.update(f"{wheel.name} {content}\n".encode())
    return digest.hexdigest()[:16]
