"""The process that builds an image, and ends when the command that requested the image ends.

The builder is the first process of a PID namespace, in a separate mount namespace. Its standard
input is a pipe that only the requesting command holds: the pipe closes when that command ends, by
Ctrl-C, kill -9 or a time-out. Then the builder kills all other processes of its namespace (if the
builder itself is killed, the kernel does), which removes their mounts; it removes the partial image
and ends. Until then it also holds the lock on the images, so that no other process builds.
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

from config.command_text import command_text
from config.errors import LabError
from lab.host_commands import call, environment, succeeds
from lab.images import frameworks, image_recipes
from lab.images.image_scratch import Build

PATIENCE_SECONDS = 3600.0
"""The time limit for an image. `frameworks` took ten minutes on two busy processors."""

END_SECONDS = 300.0
"""The time limit for removing a partial image on a busy disk, after which the builder is killed.
The builder also continues if the requesting command ends earlier."""

_COMMAND = (
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--mount-proc",
    sys.executable,
    "-m",
    "lab.images.image_builder",
)
_MAKE = {
    "stock": image_recipes.make_stock,
    "dlami": image_recipes.make_dlami,
    "frameworks": frameworks.make_frameworks,
}
"""The functions that add a flavour to a copy of its base image."""


def build_image(
    path: Path,
    flavour: str,
    base: Path | None,
    lock: IO[str],
    step: Callable[[str], None],
    patience_s: float = PATIENCE_SECONDS,
) -> None:
    """Build the image at `path` in a process that ends with this one; LabError if it fails.

    `base` is the image to start from. `lock` is the lock on the images. Building may take
    `patience_s`.
    """
    argv = [*_COMMAND, str(patience_s), flavour, str(path), *([str(base)] if base else [])]
    error = None
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment()},  # this Python's settings included
        cwd=Path(__file__).parents[2],  # where `lab` is found, installed or not
        pass_fds=(lock.fileno(),),
        start_new_session=True,  # Ctrl-C on the terminal ends this process, which closes the pipe
    ) as builder:
        assert builder.stdin is not None and builder.stdout is not None
        try:
            for line in builder.stdout:
                report = json.loads(line)
                if "step" in report:
                    step(report["step"])
                else:
                    error = LabError(report["message"], report["hint"])
        finally:
            builder.stdin.close()
            try:
                builder.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                builder.kill()  # --kill-child then ends the namespace too
    if builder.returncode != 0:
        raise error or LabError(
            f"the process that makes the image {flavour} ended with {builder.returncode}",
            "run the command again: it clears what was left",
        )


def partial(path: Path) -> Path:
    """Return the folder for building the image at `path`: `root` and temporary files."""
    return path.with_name(f"partial-{path.name}")


def remove(folder: Path) -> None:
    """Unmount all file systems in a folder of an image's build, and remove the folder."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith(f"{folder}/"):
            succeeds("umount", "--lazy", mount)
    if folder.exists():
        shutil.rmtree(folder)


def main() -> None:
    """Build one image as the first process of a PID namespace; exit with 0 if it is complete."""
    if os.getpid() != 1:  # it kills all processes that it can see
        raise SystemExit("lab.image_builder: must be the first process of a PID namespace")
    os.umask(0o022)  # all users of a machine read its files, so ignore the command's mask
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
    """Wait for the worker while the command lives; return whether the image is complete."""
    ended = os.pidfd_open(worker)
    ready, _, _ = select.select([sys.stdin, ended], [], [], patience)
    if ended in ready:
        return os.waitpid(worker, 0)[1] == 0
    if not ready:
        _report(
            message=f"the image {flavour} was not ready after {patience:.0f} s",
            hint="see what its last step waits for; run the command again",
        )
    return False


def _kill_others() -> None:
    """Kill all other processes of the namespace, and wait until they have ended."""
    with suppress(ProcessLookupError):  # there is none
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):  # orphans became children of this process
        while True:
            os.wait()


def _work(flavour: str, folder: Path, base: list[Path]) -> NoReturn:
    """Build the image in `root` of the folder; exit with 0 if it is complete."""
    build = Build(folder / "root", folder / "tmp", lambda step: _report(step=step))
    try:
        build.scratch.mkdir(parents=True)
        for image in base:
            build.step(f"copying the image {image.name.partition('-')[0]}")
            call("cp", "--archive", "--reflink=auto", image, build.root)
        _MAKE[flavour](build)
        code = 0
    except LabError as error:
        _report(message=error.message, hint=error.hint)
        code = 1
    except Exception as error:
        df = command_text("df -h {}", folder.parent)
        hint = f"check that {folder.parent} has room, {df}, and is writable"
        _report(message=f"cannot make the image: {type(error).__name__}: {error}", hint=hint)
        code = 1
    os._exit(code)


def _report(**fields: str) -> None:
    """Write one line to the requesting command, which may have ended."""
    with suppress(BrokenPipeError):  # the command has ended
        os.write(1, (json.dumps(fields) + "\n").encode())


if __name__ == "__main__":
    main()
