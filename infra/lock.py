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

_HOLDER = re.compile(r"created by (?P<user>\S*)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<at>\S+)")
_STOP_S = 120.0  # what is under way in the engine ends first: an instance that terminates
_POLL_S = 0.5


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
        """Whether it is an engine that still runs on this machine."""
        shown = subprocess.run(
            ["ps", "-o", "stat=,args=", "-p", str(self.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
        # A pid is used again, and an engine that ended unawaited is a zombie.
        return "pulumi" in shown and not shown.startswith("Z")

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
