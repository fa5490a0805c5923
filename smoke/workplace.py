"""The place where the steps act: AWS or a lab, and what a step did there."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from config.errors import GpuctlError
from config.target import Target
from lab.access_key import ADMINISTRATOR
from lab.places import Places
from operations.chosen_target import ChosenTarget
from provision.aws.account import Caller, caller
from smoke.ladder_record import StepCommand

HOME = Path(__file__).parent.parent
GPUCTL = Path(sys.executable).with_name("gpuctl")


ANY_CODE = tuple(range(-64, 256))
"""Every exit code, and every signal that can end a command."""


class StepFailed(GpuctlError):
    """The error that a step did not do what it is for; its cluster is removed all the same."""


@dataclass
class Workplace:
    """AWS, or the lab `lab`. `commands`, `notes` and `ids` are of the step that runs now.

    `folder` has the files that the ladder writes for gpuctl, and `calls` the recorded calls of the
    step. `versions` are those of everything that takes part. `environment` has the credentials of
    gpuctl's commands, if they are not the person's; they are never printed. `gpuctl` is the
    command.
    """

    lab: Places | None
    folder: Path
    commands: list[StepCommand] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ids: dict[str, None] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    gpuctl: Path = GPUCTL

    @property
    def where(self) -> Literal["aws", "lab"]:
        """Return whether this is AWS or a lab."""
        return "lab" if self.lab else "aws"

    @property
    def calls(self) -> Path:
        """The file to which this process and its gpuctl commands append their calls."""
        return self.folder / "calls.jsonl"

    @cached_property
    def target(self) -> Target:
        """The target of gpuctl's commands, for what the ladder asks AWS itself.

        In a lab the ladder is another person than gpuctl, whom no policy of the lab limits.
        """
        target = ChosenTarget(self.lab).target()
        if self.lab is None:
            return target
        administrator = {**target.environment, "AWS_SESSION_TOKEN": ADMINISTRATOR}
        return replace(target, environment=administrator)

    @cached_property
    def who(self) -> Caller:
        """The owner of the credentials."""
        return caller(self.target)

    def words(self, *words: str) -> tuple[str, ...]:
        """Return the command as a person types it."""
        return ("gpuctl", *(self.lab.options if self.lab else ()), *words)

    def begin_step(self) -> None:
        """Forget what an earlier step did."""
        self.commands, self.notes, self.ids, self.versions = [], [], {}, {}
        self.calls.unlink(missing_ok=True)

    def note(self, text: str) -> None:
        """Print a finding and keep it for the record."""
        print(f"-- {text}", flush=True)
        self.notes.append(text)

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> int:
        """Run the command on this terminal; return its exit code, StepFailed if not in `codes`."""
        with self.running(*words) as process:
            code = process.wait()
        self.check(words, code, codes)
        return code

    def read(self, *words: str, quiet: bool = False) -> str:
        """Return the command's stdout, and print it unless `quiet`; raise StepFailed if it fails.

        The failure's message ends with the last line of its stderr.
        """
        with self.running(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            output, complaint = process.communicate()
        if not quiet:
            print(output, end="", flush=True)
        last = (complaint.strip().splitlines() or [""])[-1]
        self.check(words, process.returncode, last=last)
        return output

    @contextmanager
    def running(self, *words: str, **pipes: Any) -> Iterator["subprocess.Popen[str]"]:
        """Start the command, print it, wait for its end, and record it.

        After Ctrl-C it ends by itself: it gets that too. It gets one in place of any other signal.
        """
        shown = " ".join(self.words(*words))
        print(f"\n$ {shown}", flush=True)
        began = time.monotonic()
        options = self.lab.options if self.lab else ()
        # A profile of the person would count before the role's credentials.
        kept = {k: v for k, v in os.environ.items() if not self.environment or k != "AWS_PROFILE"}
        pipes |= {"cwd": HOME, "text": True, "env": kept | self.environment}
        with subprocess.Popen([self.gpuctl, *options, *words], **pipes) as process:
            try:
                yield process
                process.wait()
            except BaseException as error:
                with uninterrupted():
                    if not isinstance(error, KeyboardInterrupt):
                        process.send_signal(signal.SIGINT)
                    process.communicate()  # reads its pipes, so that it is not stuck
                raise
            finally:
                seconds = round(time.monotonic() - began, 1)
                code = process.returncode or 0
                self.commands.append(StepCommand(words=shown, seconds=seconds, exit_code=code))

    def check(
        self, words: tuple[str, ...], code: int, codes: tuple[int, ...] = (0,), last: str = ""
    ) -> None:
        """Raise StepFailed if the command's exit code is not in `codes`."""
        if code not in codes:
            reason = f": {last.removeprefix('gpuctl: error: ')}" if last else ""
            shown = " ".join(self.words(*words))
            raise StepFailed(f"`{shown}` ended with exit code {code}{reason}", "")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and a closed terminal; programs started meanwhile do so too."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
