"""Pulumi's lock on a stack, and its holder.

The Pulumi engine locks a stack while it works, and leaves the lock behind if it is killed. The
error of the next operation names the holder, for every backend. gpuctl can find out whether the
holder is alive only on this machine.
"""

import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from config.polling import Timeouts, poll

_HOLDER = re.compile(r"created by (?P<user>\S*)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<at>\S+)")
_STOP = Timeouts(120, 0.5)
"""The Pulumi engine finishes its current steps first, such as a termination."""
_PROGRAM = "pulumi"
_LONGEST_DAYS = 10_000
_ROUNDING = timedelta(seconds=2)  # both times are in whole seconds


@dataclass(frozen=True)
class LockHolder:
    """The process that a lock names."""

    user: str
    host: str
    pid: int
    since: str

    @property
    def is_here(self) -> bool:
        """Return whether it was started on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Return whether it is a Pulumi engine that runs on this machine.

        Pids are reused: the process with this pid holds the lock only if it is Pulumi's program and
        was started before the lock was created.
        """
        now = datetime.now(UTC)  # read before ps runs, which takes seconds on a busy machine
        shown = subprocess.run(
            ["ps", "-o", "stat=,etime=,comm=", "-p", str(self.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split(maxsplit=2)
        if len(shown) != 3 or shown[0].startswith("Z"):  # a zombie has ended
            return False
        started = now - _elapsed(shown[1])
        locked = datetime.fromisoformat(self.since)
        return Path(shown[2].strip()).name == _PROGRAM and started <= locked + _ROUNDING

    def stop(self) -> None:
        """Interrupt the Pulumi engine, so that it writes its state; kill it if it does not end."""
        os.kill(self.pid, signal.SIGINT)
        if not poll(lambda: None if self.is_alive else True, _STOP):
            os.kill(self.pid, signal.SIGKILL)

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (pid {self.pid}) since {self.since}"


def holders(message: str) -> tuple[LockHolder, ...]:
    """Return the holders of the locks that the Pulumi engine's error names."""
    return tuple(
        LockHolder(match["user"], match["host"], int(match["pid"]), match["at"])
        for match in _HOLDER.finditer(message)
    )


def _elapsed(text: str) -> timedelta:
    """Return the time that ps(1) gives as `[[DD-]HH:]MM:SS`.

    ps may compute a negative time for a process that has just started, and prints it as 136 years.
    """
    days, _, clock = text.rpartition("-")
    if int(days or 0) > _LONGEST_DAYS:
        return timedelta()
    hours, minutes, seconds = (["0", *clock.split(":")])[-3:]
    return timedelta(
        days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=int(seconds)
    )
