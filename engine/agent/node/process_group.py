"""The process group of a program that was started in a new session."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

_EXIT_CODE = 49  # in /proc/PID/stat, behind the name: proc(5)
_LOOK_S = 0.05  # between two questions whether a leader has ended


class ProcessGroup:
    """The group that `leader` leads. Thread-safe.

    The kernel may give the number of a reaped process to another one, and with it the number of a
    group. So the leader's end is awaited without reaping it, and no signal is sent after `release`.
    """

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        self._leader = leader
        self.number = leader.pid
        self._lock = threading.Lock()
        self._is_released = False

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the leader's end and return its status, negative if a signal ended it.

        Return None if it lives on after `seconds`.
        """
        if seconds is None and hasattr(os, "waitid"):  # PyPy does not have it
            with contextlib.suppress(ChildProcessError):  # released meanwhile
                os.waitid(os.P_PID, self.number, os.WEXITED | os.WNOWAIT)
            return self.status
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        while self.status is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return self.status

    @property
    def status(self) -> int | None:
        """The leader's exit status, negative if a signal ended it; None as long as it lives."""
        with self._lock:
            if self._is_released:
                return self._leader.returncode
            fields = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z":
            return None
        code = int(fields[_EXIT_CODE])
        return code >> 8 if code & 0x7F == 0 else -(code & 0x7F)

    def signal(self, number: int) -> None:
        """Send the signal to all processes of the group; do nothing after `release`."""
        with self._lock:
            if not self._is_released:
                with contextlib.suppress(ProcessLookupError):  # its leader has left it
                    os.killpg(self.number, number)

    def has_processes(self) -> bool:
        """Return whether a process of the group lives; one that nobody has reaped does not."""
        return any(_is_member(stat, self.number) for stat in Path("/proc").glob("[0-9]*/stat"))

    def release(self) -> int:
        """Wait for the leader's end, reap it, and return its status."""
        self.wait()
        with self._lock:
            self._is_released = True
            return self._leader.wait()


def _is_member(stat: Path, group: int) -> bool:
    try:
        state, _, number, *_ = stat.read_text().rpartition(")")[2].split()
    except (OSError, ValueError):  # it has ended
        return False
    return int(number) == group and state not in "ZX"
