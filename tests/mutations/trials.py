"""Runs tests against mutants, each in a process of its own and in a copy of the working tree."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
ROOMS = (
    "cli",
    "operations",
    "provision",
    "engine",
    "infra",
    "nodes",
    "formats",
    "config",
    "lab",
    "tests",
    "gpuctl",
)
MARK = "GPUCTL_TRIAL"
"""A variable by which all processes of a trial are found, whatever group they are in."""

Outcome = Literal["killed", "survived", "timed out"]


@dataclass(frozen=True)
class Trial:
    """The tests of `path` on `text`, for at most `seconds`, of which `cpu_s` on a CPU."""

    path: str
    text: str
    tests: tuple[str, ...]
    seconds: float
    cpu_s: int


@dataclass(frozen=True)
class Done:
    """How a trial ended, and what it cost. `trial` is its position among all."""

    trial: int
    outcome: Outcome
    seconds: float
    output: str


@dataclass(frozen=True)
class _Running:
    trial: int
    pid: int
    mark: str
    slot: Path
    began: float


class Slots:
    """Copies of the working tree, one for each trial that runs at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.split("\0")  # fmt: skip
        self.free = [folder / f"slot{number}" for number in range(count)]
        for slot in self.free:
            for name in filter(None, names):
                if (ROOT / name).is_file():
                    (slot / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, slot / name, follow_symlinks=False)
        # Python takes a cached module for current by the seconds of its source's time.
        self._time = 1_000_000_000

    def write(self, slot: Path, path: str, text: str) -> None:
        """Write the module's text under a time that it never had."""
        self._time += 1
        (slot / path).write_text(text)
        os.utime(slot / path, (self._time, self._time))


def run_trials(trials: list[Trial], folder: Path, jobs: int) -> Iterator[Done]:
    """Yield each trial's end, in order of arrival; whatever a trial started is killed."""
    _preload()
    slots = Slots(folder, jobs)
    waiting = list(enumerate(trials))
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and slots.free:
                number, trial = waiting.pop(0)
                running.append(_start(number, trial, slots))
            time.sleep(0.05)
            for one in list(running):
                done = _look(one, trials[one.trial])
                if done is not None:
                    running.remove(one)
                    slots.write(one.slot, trials[one.trial].path, _original(trials[one.trial]))
                    slots.free.append(one.slot)
                    yield done
    finally:
        for one in running:
            _kill(one)


def _original(trial: Trial) -> str:
    return (ROOT / trial.path).read_text()


def _preload() -> None:
    """Import what tests need and is not ours, so that no trial has to."""
    import asyncssh  # noqa: F401
    import boto3  # noqa: F401
    import hypothesis
    import pydantic  # noqa: F401
    import rich.console  # noqa: F401
    import typer.testing  # noqa: F401
    import yaml  # noqa: F401

    # A failure is enough: which example is the smallest does not matter.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "trial", phases=phases, database=None, deadline=None, derandomize=True
    )
    hypothesis.settings.load_profile("trial")


def _start(number: int, trial: Trial, slots: Slots) -> _Running:
    slot, mark = slots.free.pop(0), uuid.uuid4().hex
    slots.write(slot, trial.path, trial.text)
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = _test(trial, slot, mark)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return _Running(number, pid, mark, slot, time.monotonic())


def _test(trial: Trial, slot: Path, mark: str) -> int:
    """Run the tests in this process, with our modules from the copy."""
    import pytest

    os.setsid()
    output = os.open(_log(slot), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A mutant may compute for ever, or fill the memory.
    resource.setrlimit(resource.RLIMIT_CPU, (trial.cpu_s, trial.cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    os.environ.update({MARK: mark, "PYTHONPATH": str(slot)})
    os.chdir(slot)
    sys.path[:] = [str(slot), *(one for one in sys.path if Path(one or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOMS]:
        del sys.modules[name]
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--rootdir", str(slot)]
    options += ["--basetemp", str(slot.with_suffix(".tmp"))]  # pytest's own is common to all
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what was preloaded
    return int(pytest.main([*options, "-m", "not lab and not engine", *trial.tests]))


def _log(slot: Path) -> Path:
    return slot.with_suffix(".log")


def _look(one: _Running, trial: Trial) -> Done | None:
    """Return the trial's end if it has one, after its last process is gone."""
    seconds = time.monotonic() - one.began
    pid, status = os.waitpid(one.pid, os.WNOHANG)
    outcome: Outcome
    if pid == 0:
        if seconds < trial.seconds:
            return None
        outcome = "timed out"
        _kill(one)
        os.waitpid(one.pid, 0)
    else:
        code = os.waitstatus_to_exitcode(status)
        outcome = "survived" if code == 0 else "killed"
        if -code in (signal.SIGXCPU, signal.SIGKILL):
            outcome = "timed out"
        _kill(one)
    return Done(one.trial, outcome, seconds, _log(one.slot).read_text(errors="replace"))


def _kill(one: _Running) -> None:
    """Kill the trial's own group, then all that has its mark until nothing new appears."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(one.pid, signal.SIGKILL)
    while found := set(_marked(one.mark)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _marked(mark: str) -> Iterable[int]:
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it ended meanwhile
                if wanted in (folder / "environ").read_bytes():  # empty of what is dead
                    yield int(folder.name)
