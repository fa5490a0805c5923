"""What makes an image ends with its maker, and leaves nothing: real processes, real mounts.

In place of mmdebstrap is a program that does what builds do: it mounts into the image, starts a
process that leaves its session, and is busy until it is killed.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from config.errors import LabError
from config.progress import Progress, silent
from lab import leftovers
from lab.images import image
from lab.images.image_builder import build_image
from tests.labs import lab_for

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

GPUCTL = Path(sys.executable).with_name("gpuctl")

_BUSY = """\
#!/bin/sh
trap '' INT TERM HUP
for root; do case $root in */root) break;; esac; done
mkdir -p "$root/proc" "$root/mnt"
mount -t tmpfs tmpfs "$root/mnt"
mount --bind /proc "$root/proc"
touch "$root/mnt/file" "$TMPDIR/file"
setsid sh -c 'echo "I: compiling" >&2; exec sleep 1000 >/dev/null 2>&1' &
wait
"""
_FAILS = """\
#!/bin/sh
for root; do case $root in */root) break;; esac; done
mkdir -p "$root/mnt"
mount -t tmpfs tmpfs "$root/mnt"
setsid sleep 1000 >/dev/null 2>&1 &
echo "E: no mirror" >&2
exit 1
"""


@dataclass(frozen=True)
class Place:
    """A cache of its own, and a folder whose programs come first."""

    cache: Path
    programs: Path

    @property
    def images(self) -> Path:
        return self.cache / "gpuctl/lab"

    def mmdebstrap(self, text: str) -> None:
        (self.programs / "mmdebstrap").write_text(text)
        (self.programs / "mmdebstrap").chmod(0o755)

    def files(self) -> list[str]:
        return sorted(path.name.partition("-")[0] for path in self.images.iterdir())

    def mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line for line in lines if str(self.cache) in line]

    def processes(self) -> list[str]:
        """The command lines of all that run with this cache, but for this process."""
        mark, found = f"XDG_CACHE_HOME={self.cache}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:  # it has ended, or is the machine's own
                continue
        return found

    def await_compiler(self) -> None:
        """Wait until the build's shell has become `sleep`, which it does after it spoke."""
        end = time.monotonic() + 30
        while not any("sleep 1000" in process for process in self.processes()):
            assert time.monotonic() < end, self.processes()
            time.sleep(0.01)

    @contextmanager
    def making(self) -> Iterator[subprocess.Popen[str]]:
        """`gpuctl lab images stock` while it runs, in the middle of its build."""
        with subprocess.Popen(
            # a background job's children ignore Ctrl-C
            ["env", "--default-signal=INT", GPUCTL, "lab", "images", "stock"],
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as maker:
            try:
                read_until(maker, "compiling")
                self.await_compiler()
                yield maker
            finally:
                maker.kill()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path / "cache", tmp_path / "bin")
    place.programs.mkdir()
    path = f"{place.programs}:{os.environ['PATH']}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.cache))
    monkeypatch.setenv("PATH", path)
    image.image_path.cache_clear()
    place.mmdebstrap(_BUSY)
    yield place
    image.image_path.cache_clear()


def read_until(maker: subprocess.Popen[str], word: str) -> None:
    assert maker.stdout is not None and maker.stderr is not None
    for line in maker.stdout:
        if word in line:
            return
    raise AssertionError(f"it ended: {maker.stderr.read()}")


def wait_for_the_builder(maker: subprocess.Popen[str]) -> str:
    """Wait until nobody holds the maker's stderr, which its builder has too; what it said."""
    assert maker.stderr is not None
    said, descriptor = b"", maker.stderr.fileno()
    while select.select([descriptor], [], [], 60)[0]:
        if not (part := os.read(descriptor, 4096)):
            return said.decode()
        said += part
    raise AssertionError("the builder lives on after 60 s")


def test_ctrl_c_leaves_nothing(place: Place) -> None:
    with place.making() as maker:
        os.killpg(maker.pid, signal.SIGINT)
        said = wait_for_the_builder(maker)
        assert maker.wait(60) == 130
    assert said.startswith("gpuctl: interrupted")
    assert place.processes() == []
    assert place.mounts() == []
    assert place.files() == ["lock"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_maker_takes_all_with_it(place: Place, number: signal.Signals) -> None:
    with place.making() as maker:
        maker.send_signal(number)
        assert wait_for_the_builder(maker) == ""
        assert maker.wait(60) == -number
    assert place.processes() == []
    assert place.mounts() == []
    assert place.files() == ["lock"]


@pytest.fixture
def left(place: Place) -> Path:
    """What a builder left that was killed itself, as with `kill -9` of a whole group."""
    with place.making() as maker:
        (unshare,) = Path(f"/proc/{maker.pid}/task/{maker.pid}/children").read_text().split()
        os.kill(int(unshare), signal.SIGKILL)
        said = wait_for_the_builder(maker)
        assert maker.wait(60) == 1
    assert said == (
        "gpuctl: error: the process that makes the image stock ended with -9; "
        "run the command again: it clears what was left\n"
    )
    assert place.processes() == []
    assert place.mounts() == []
    (folder,) = image.interrupted()
    (folder / "left").touch()
    return folder


def test_what_a_killed_builder_left_is_cleared_by_the_next(place: Place, left: Path) -> None:
    with place.making():
        assert not (left / "left").exists()


def test_what_a_killed_builder_left_is_cleared_by_lab_stop(place: Place, left: Path) -> None:
    # the folder is on a disk that knew no namespace of ours, or a mount was made by hand
    (left / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", left / "mnt"], check=True)
    assert f"interrupted image {left.name}" in leftovers.find(lab_for("image"))
    image.remove_interrupted()
    assert place.mounts() == []
    assert place.files() == ["lock"]


def test_a_build_that_takes_too_long_is_ended(place: Place) -> None:
    with pytest.raises(LabError) as caught:
        image.ensure_image("stock", silent, partial(build_image, patience_s=3.0))
    assert str(caught.value) == (
        "the image stock was not ready after 3 s; see what its last step waits for; "
        "run the command again"
    )
    assert place.processes() == []
    assert place.files() == ["lock"]


def test_a_failed_build_leaves_nothing(place: Place) -> None:
    place.mmdebstrap(_FAILS)
    seen: list[Progress] = []
    with pytest.raises(LabError, match="mmdebstrap failed with exit code 1: E: no mirror"):
        image.ensure_image("stock", seen.append)
    assert [progress.state for progress in seen] == ["start", "failed"]
    assert place.processes() == []
    assert place.mounts() == []
    assert place.files() == ["lock"]
