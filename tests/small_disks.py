"""Small disks of this machine, and what fills them."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount a disk of that size (`1m`) at `place` until the end of this."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path, but: int) -> Path:
    """Leave so many bytes of the disk; return the file that has the others."""
    path = disk / "others"
    with path.open("wb", buffering=0) as others, contextlib.suppress(OSError):  # it is full
        while others.write(b"x" * 4096):
            pass
    with path.open("r+b") as others:
        others.truncate(path.stat().st_size - but)
    return path


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """Mount the folder on itself, read-only, until the end of this."""
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
