"""The kernel's log of a node while a job runs."""

from __future__ import annotations

import contextlib
import os

KMSG = "/dev/kmsg"
_RECORD = 8192  # bytes: the kernel gives one record per read, of at most this size
_MOST = 16 * 1024 * 1024  # bytes of the log to read at most; the largest usual buffer


class KernelLog:
    """The log from now on; empty if it cannot be read, as in a container.

    With `since`, in seconds since the machine's start, it has the earlier messages from then on.
    """

    def __init__(self, path: str = KMSG, *, since: float | None = None) -> None:
        self._descriptor: int | None = None
        self._since = since or 0.0
        # OSError: no such file, no permission, or a FIFO, which a container has instead.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.lseek(descriptor, 0, os.SEEK_END if since is None else os.SEEK_SET)
            except OSError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor

    def lines(self) -> list[str]:
        """Return the messages since the last call, or since the start.

        The kernel overwrites the oldest messages; those are missing.
        """
        lines: list[str] = []
        size = 0
        while self._descriptor is not None and size < _MOST:
            try:
                data = os.read(self._descriptor, _RECORD)
            except BrokenPipeError:  # messages were overwritten; the next read goes on behind them
                continue
            except OSError:  # EAGAIN: there are no more
                break
            if not data:
                break
            size += len(data)
            for line in data.decode("utf-8", "replace").split("\n"):
                prefix, separator, text = line.partition(";")
                # "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT"; lines with a space continue a record
                # (https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg, 2026-11-23).
                if separator and prefix[:1].isdigit() and self._is_due(prefix):
                    lines.append(text)
        return lines

    def _is_due(self, prefix: str) -> bool:
        return int(prefix.split(",")[2]) / 1e6 >= self._since

    def close(self) -> None:
        """Close the log; `lines` is empty from now on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lines_since(seconds: float) -> list[str]:
    """Return the messages that the kernel has since then, in seconds since the machine's start."""
    log = KernelLog(since=seconds)
    try:
        return log.lines()
    finally:
        log.close()
