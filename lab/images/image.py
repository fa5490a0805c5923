"""The images of the lab's machines: Debian with real cloud-init, made once and kept.

`stock` is a distribution's plain cloud image, and has the source of a CPU stand-in for nccl-tests
where set-up looks for source. `dlami` is what a Deep Learning AMI is to a job: it has Open MPI, in
`/root/nccl-tests/build` programs that answer to nccl-tests' names, podman, and stand-ins for the
tools of GPUs and EFA (`lab/images/stand_ins`). `frameworks` has what run files launch too
(`lab.images.frameworks`).

The images are in the cache, for all labs of this machine. A separate process makes them
(`lab.images.image_builder`).
"""

import functools
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal, get_args

from config import file_locks
from config.errors import LabError
from config.progress import Progress, Reporter
from lab.images import frameworks, image_recipes
from lab.images.image_builder import build_image, remove
from lab.places import images, make_private

Flavour = Literal["stock", "dlami", "frameworks"]

Builder = Callable[[Path, str, Path | None, IO[str], Callable[[str], None]], None]
"""Makes an image, as `build_image` does."""

FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)

OF_THE_LAB: tuple[Flavour, ...] = ("dlami", "stock")
"""The flavours that every lab has; others are made when a cluster asks for them."""

_BASE: dict[Flavour, Flavour] = {"dlami": "stock", "frameworks": "dlami"}
"""The flavour that another one is a copy of, with more software."""

_TAKES = {
    "dlami": "about a minute",
    "stock": "about a minute",
    "frameworks": "about six minutes and 3 GB",
}


def ensure_image(flavour: Flavour, report: Reporter, build: Builder = build_image) -> Path:
    """Return the root file system of the flavour; make it when it is not in the cache.

    The folder exists only when the image is complete. The flavour that it is based on is made
    first, each by `build`. Progress has stage `image` and the flavour as its subject. LabError when
    it cannot be made. A build removes images of former recipes.
    """
    path = image_path(flavour)
    if path.is_dir():
        return path
    base = ensure_image(_BASE[flavour], report, build) if flavour in _BASE else None

    def step(detail: str) -> None:
        report(Progress("image", flavour, "running", detail))

    with _alone(lambda: step("waiting for another process that makes images")) as lock:
        if path.is_dir():  # another process made it while this one waited
            return path
        for left in _left():
            remove(left)
        started = time.monotonic()
        report(Progress("image", flavour, "start", f"{_TAKES[flavour]}, kept for the next time"))
        try:
            build(path, flavour, base, lock, step)
        except LabError:
            report(Progress("image", flavour, "failed"))
            raise
        _remove_former(flavour, path)
    report(Progress("image", flavour, "done", str(path), time.monotonic() - started))
    return path


def interrupted() -> tuple[Path, ...]:
    """Return what killed builds left in the cache; nothing while a build is at work."""
    if not images().is_dir():
        return ()
    try:
        with _alone():
            return _left()
    except BlockingIOError:
        return ()


def remove_interrupted() -> None:
    """Remove what `interrupted` returns."""
    if not interrupted():
        return
    with suppress(BlockingIOError), _alone():  # another process makes one: it clears
        for path in _left():
            remove(path)


@functools.cache
def image_path(flavour: Flavour) -> Path:
    """Return the path of the image of this recipe, which may not exist yet."""
    digest = hashlib.sha256()
    for part in _recipe(flavour):
        digest.update(part.encode() + b"\0")
    return images() / f"{flavour}-{digest.hexdigest()[:12]}"


def _recipe(flavour: Flavour) -> tuple[str, ...]:
    """Return everything that determines the image; with other parts it has another name."""
    own = {
        "stock": image_recipes.stock_parts,
        "dlami": image_recipes.dlami_parts,
        "frameworks": frameworks.parts,
    }
    base = _recipe(_BASE[flavour]) if flavour in _BASE else ()
    return (*base, *own[flavour]())


def _left() -> tuple[Path, ...]:
    return tuple(images().glob("partial-*"))


def _remove_former(flavour: Flavour, path: Path) -> None:
    # A machine's root is based on a mount of its image (lab/machines/user_namespaces.py).
    mounts = Path("/proc/self/mountinfo").read_text()
    for former in images().glob(f"{flavour}-*"):
        if former != path and f"/{former.name} " not in mounts:
            shutil.rmtree(former)


@contextmanager
def _alone(on_wait: Callable[[], None] | None = None) -> Iterator[IO[str]]:
    """Hold the lock on the images; wait for it after `on_wait`, without it BlockingIOError."""
    images().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_private(images())
    with (images() / "lock").open("w") as lock:
        if on_wait is not None:
            file_locks.wait_for_lock(lock, on_wait)
        elif not file_locks.try_lock(lock):
            raise BlockingIOError
        yield lock
