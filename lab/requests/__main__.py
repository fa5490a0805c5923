"""The requests of a whole rehearsal: `python -m lab.requests record DIR`.

It starts a lab, brings a cluster up, runs a job on it and takes it down, with the commands that a
user types. DIR then has a JSON file for each request that AWS would have received, numbered in
order. It needs root, like every lab.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from config.command_text import command_text
from config.errors import GpuctlError, InputError, LabError
from config.loading.load import load_cluster
from lab.places import Places

_STACKS = Path(__file__).parents[2] / "stacks"
_COMMAND = str(Path(sys.executable).with_name("gpuctl"))


def record(folder: Path, lab: Places, cluster: Path, run: Path) -> int:
    """Record the requests of one cluster's life in the new folder; return how many."""
    name = load_cluster(cluster).name
    if folder.exists():
        raise InputError(f"{folder} exists", "name a folder that does not exist")
    with _lab(lab), _recording(lab):
        _gpuctl(lab, "up", str(cluster), "--yes")
        _gpuctl(lab, "run", str(run))
        _gpuctl(lab, "down", name, "--yes")
        shutil.copytree(lab.requests, folder)
    return len(list(folder.iterdir()))


@contextmanager
def _lab(lab: Places) -> Iterator[None]:
    """Start the lab, and stop it at the end; LabError if it is up, because somebody uses it."""
    if lab.record.exists():
        raise LabError(f"the lab {lab.name} is up", f"stop it with `{lab.command('stop')}`")
    try:
        _gpuctl(lab, "lab", "start")
        yield
    finally:
        _gpuctl(lab, "lab", "stop")


@contextmanager
def _recording(lab: Places) -> Iterator[None]:
    """Create the folder that makes the lab record, and remove it: stopping a lab leaves it."""
    lab.requests.mkdir(exist_ok=True)
    try:
        yield
    finally:
        shutil.rmtree(lab.requests)


def _gpuctl(lab: Places, *words: str) -> None:
    done = subprocess.run([_COMMAND, *lab.options, *words], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        shown = command_text(f"gpuctl{' {}' * len(words)}", *words)
        raise LabError(
            f"{shown} ended with exit code {done.returncode}",
            "see its output above",
        )


def main(words: Sequence[str] | None = None) -> int:
    """Carry out the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.requests")
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="record the requests of up, run and down")
    recording.add_argument("folder", type=Path, metavar="DIR", help="a folder that does not exist")
    recording.add_argument("--lab-name", default="requests", help="the lab to start and stop")
    recording.add_argument("--cluster", type=Path, default=_STACKS / "demo.yaml")
    recording.add_argument("--run", type=Path, default=_STACKS / "hello.yaml")
    given = parser.parse_args(words)
    try:
        number = record(given.folder, Places(given.lab_name), given.cluster, given.run)
    except GpuctlError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{number} requests in {given.folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
