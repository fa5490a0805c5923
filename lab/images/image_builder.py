"""The process that makes an image, and ends with whoever wants the image.

It is the first process of a PID namespace, in a mount namespace of its own. Its standard input is a
pipe that only the maker holds: the pipe ends when the maker does, by Ctrl-C, kill -9 or a time-out.
Then the process kills all others of its namespace (the kernel does, should it be killed itself),
with whose end their mounts go, removes the half image, and ends. It also holds the lock on the
images until then, so that nobody else builds meanwhile.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

from config.errors import LabError
from lab.host import ENVIRONMENT, call, succeeds
from lab.images import frameworks, image_recipes
from lab.images.image_scratch import Build

PATIENCE_SECONDS = 3600.0
"""How long an image may take. `frameworks` took ten minutes on two busy processors."""

END_SECONDS = 300.0
"""How long the process may take to remove a half image, on a busy disk, before it is killed. It
does not stop when the maker stops waiting for it."""

_COMMAND = (
    *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
    *(sys.executable, "-m", "lab.images.image_builder"),
)
_MAKE = {
    "stock": image_recipes.make_stock,
    "dlami": image_recipes.make_dlami,
    "frameworks": frameworks.make_frameworks,
}
"""What adds a flavour to a copy of the image that it is based on."""


def build_image(
    path: Path, flavour: str, base: Path | None, lock: IO[str], step: Callable[[str], None]
) -> None:
    """Make the image at `path` in a process that ends with this one; LabError when it fails.

    `base` is the image to start from. `lock` is the lock on the images.
    """
    argv = [*_COMMAND, str(PATIENCE_SECONDS), flavour, str(path), *([str(base)] if base else [])]
    error = None
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        cwd=Path(__file__).parents[2],  # where `lab` is found, installed or not
        pass_fds=(lock.fileno(),),
        start_new_session=True,  # Ctrl-C on the terminal is for the maker, which ends the pipe
    ) as builder:
        assert builder.stdin is not None and builder.stdout is not None
        try:
            for line in builder.stdout:
                said = json.loads(line)
                if "step" in said:
                    step(said["step"])
                else:
                    error = LabError(said["message"], said["hint"])
        finally:
            builder.stdin.close()
            try:
                builder.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                builder.kill()  # and with it, by --kill-child, the namespace
    if builder.returncode != 0:
        raise error or LabError(
            f"the process that makes the image {flavour} ended with {builder.returncode}",
            "run the command again: it clears what was left",
        )


def partial(path: Path) -> Path:
    """Return the folder in which the image at `path` is made: `root`, and temporary files."""
    return path.with_name(f"partial-{path.name}")


def remove(folder: Path) -> None:
    """Remove a folder in which an image was made; nothing stays mounted in it."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith(f"{folder}/"):
            succeeds("umount", "--lazy", mount)
    if folder.exists():
        shutil.rmtree(folder)


def main() -> None:
    """Make one image as the first process of a PID namespace; exit code 0 when it is whole."""
    if os.getpid() != 1:  # it kills every process that it sees
        raise SystemExit("lab.image_builder: must be the first process of a PID namespace")
    os.umask(0o022)  # an image's files are for all of its users, whatever the command's mask
    patience, flavour = float(sys.argv[1]), sys.argv[2]
    path, base = Path(sys.argv[3]), [Path(word) for word in sys.argv[4:]]
    folder = partial(path)
    worker = os.fork()
    if worker == 0:
        _work(flavour, folder, base)
    is_whole = _wait(worker, flavour, patience)
    _kill_others()
    if is_whole:
        (folder / "root").rename(path)
    remove(folder)
    raise SystemExit(0 if is_whole else 1)


def _wait(worker: int, flavour: str, patience: float) -> bool:
    """Wait for the worker, at most as long as the maker lives; whether it has made the image."""
    ended = os.pidfd_open(worker)
    ready, _, _ = select.select([sys.stdin, ended], [], [], patience)
    if ended in ready:
        return os.waitpid(worker, 0)[1] == 0
    if not ready:
        _say(
            message=f"the image {flavour} was not ready after {patience:.0f} s",
            hint="see what its last step waits for; run the command again",
        )
    return False


def _kill_others() -> None:
    """Kill every other process of the namespace, and wait until none is left."""
    with suppress(ProcessLookupError):  # there is none
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):  # all that were orphaned are our children now
        while True:
            os.wait()


def _work(flavour: str, folder: Path, base: list[Path]) -> NoReturn:
    """Make the image in `root` of the folder; the exit code says whether it is whole."""
    build = Build(folder / "root", folder / "tmp", lambda step: _say(step=step))
    try:
        build.scratch.mkdir(parents=True)
        for image in base:
            build.step(f"copying the image {image.name.partition('-')[0]}")
            call("cp", "--archive", "--reflink=auto", image, build.root)
        _MAKE[flavour](build)
        code = 0
    except LabError as error:
        _say(message=error.message, hint=error.hint)
        code = 1
    except Exception as error:
        hint = f"check that {folder.parent} has room, `df -h {folder.parent}`, and is writable"
        _say(message=f"cannot make the image: {type(error).__name__}: {error}", hint=hint)
        code = 1
    os._exit(code)


def _say(**said: str) -> None:
    """Write one line to the maker, which may be gone."""
    with suppress(BrokenPipeError):  # who is gone is told nothing
        os.write(1, (json.dumps(said) + "\n").encode())


if __name__ == "__main__":
    main()
