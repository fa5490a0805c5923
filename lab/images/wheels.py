"""A cache of wheels that were built from source: a second build of an image needs no compiler.

A set of wheels is a folder. Its name contains a digest of all that determines the build, and a
digest of the wheels, so that an incomplete or damaged set is never installed.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from lab.places import images


def ensure_wheels(
    parts: tuple[str, ...], scratch: Path, build: Callable[[Path], None]
) -> tuple[Path, ...]:
    """Return the wheels that `parts` determine, sorted; `build` them if the cache has none.

    `build` writes them to an empty folder in `scratch`, which must be on the cache's file system.
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
