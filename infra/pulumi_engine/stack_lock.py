"""Pulumi's lock on a stack, and who holds it.

The engine locks a stack while it works and leaves the lock behind when it is killed. The error of
the next operation names the holder, for every backend alike; only a holder on this machine can be
judged from here.
"""

import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

_HOLDER = re.compile(r"created by (?P<user>\S*)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<at>\S+)")
_STOP_S = 120.0  # what is under way in the engine ends first: an instance that terminates
_POLL_S = 0.5
_PROGRAM = "pulumi"
_LONGEST_DAYS = 10_000
_ROUNDING = timedelta(seconds=2)  # both times are in whole seconds


@dataclass(frozen=True)
class Holder:
    """The process that a lock names."""

    user: str
    host: str
    pid: int
    since: str

    @property
    def is_here(self) -> bool:
        """Whether it was started on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """True while it is an engine that runs on this machine.

        A pid is used again: whoever has it now holds the lock only if it is Pulumi's program and
        was started before the lock was made.
        """
        now = datetime.now(UTC)  # before ps is asked: on a busy machine that takes seconds
        shown = subprocess.run(
            ["ps", "-o", "stat=,etime=,comm=", "-p", str(self.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split(maxsplit=2)
        if len(shown) != 3 or shown[0].startswith("Z"):  # an engine that ended unawaited
            return False
        started = now - _elapsed(shown[1])
        locked = datetime.fromisoformat(self.since)
        return Path(shown[2].strip()).name == _PROGRAM and started <= locked + _ROUNDING

    def stop(self) -> None:
        """The engine has ended: asked first, so that it writes its state, then made to."""
        os.kill(self.pid, signal.SIGINT)
        end = time.monotonic() + _STOP_S
        while self.is_alive and time.monotonic() < end:
            time.sleep(_POLL_S)
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (pid {self.pid}) since {self.since}"


def holders(message: str) -> tuple[Holder, ...]:
    """Who holds the locks that the engine's complaint names."""
    return tuple(
        Holder(match["user"], match["host"], int(match["pid"]), match["at"])
        for match in _HOLDER.finditer(message)
    )


def _elapsed(text: str) -> timedelta:
    """Return the time that ps(1) gives as `[[DD-]HH:]MM:SS`.

    Of a process that has just started it may give the time less than nothing, as 136 years.
    """
    days, _, clock = text.rpartition("-")
    if int(days or 0) > _LONGEST_DAYS:
        return timedelta()
    hours, minutes, seconds = (["0", *clock.split(":")])[-3:]
    return timedelta(
        days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=int(seconds)
    )
