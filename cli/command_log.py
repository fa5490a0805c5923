"""The log of one command: a file in the state folder, to be read when the command is over.

gpuctl's own logger `gpuctl` writes to it; other libraries do from warnings on, because their
details have whole requests. Nothing that looks like a secret is written (config/sensitive.py).
A command that logs nothing leaves no file.
"""

import logging
import os
import platform
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from config.folders import kept_logs, logs_folder
from config.sensitive import HIDDEN, SecretsOfEnvironment
from config.version import gpuctl_version

LEVELS = ("debug", "info", "warning", "error")
KEPT_FILES, KEPT_BYTES = 50, 100 << 20

_LOGGER = logging.getLogger("gpuctl")
_VARIABLE = re.compile(r"((?:--env=|--set=)?[A-Za-z_]\w*=).*", re.DOTALL)
"""A word of the command line that sets a variable: its value may be a secret."""


class CommandLog(logging.Handler):
    """Writes records to a file, which the first record creates."""

    def __init__(self, command: str, words: Sequence[str], level: str) -> None:
        super().__init__(level.upper())
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.path = logs_folder() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{command}.log"
        shown = (_VARIABLE.sub(rf"\1{HIDDEN}", word) for word in words)
        self._first_line = f"gpuctl {shlex.join(shown)}"
        self._secrets = SecretsOfEnvironment()
        self._descriptor: int | None = None
        self._began = time.monotonic()

    def write_end(self, code: object) -> None:
        """Write how the command ended, if the file exists."""
        if self.is_written:
            _LOGGER.info("ended with %s after %.1f s", code, time.monotonic() - self._began)

    @property
    def is_written(self) -> bool:
        """Return whether the file exists."""
        return self._descriptor is not None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; a full disk or a folder that cannot be written ends no command."""
        if record.name != _LOGGER.name and record.levelno < logging.WARNING:
            return
        try:
            if self._descriptor is None:
                self._descriptor = _opened(self.path)
                self._write(f"{self._first_line}\n{_versions()}")
            self._write(self.format(record))
        except OSError:
            pass  # there is no other place for it

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        super().close()

    def _write(self, text: str) -> None:
        assert self._descriptor is not None
        # Unbuffered: what a full disk refuses would be written again when the file is closed.
        os.write(self._descriptor, (self._secrets.hide(text) + "\n").encode(errors="replace"))


def start(command: str, words: Sequence[str], level: str) -> CommandLog:
    """Log the command to a file from now on, at this level of LEVELS."""
    log, root = CommandLog(command, words, level), logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, CommandLog)]:
        root.removeHandler(earlier)
        earlier.close()
    root.addHandler(log)
    _LOGGER.setLevel(level.upper())
    return log


def _opened(path: Path) -> int:
    """Open the new file, which only its owner can read, in place of the oldest files."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = kept_logs()
    sizes = {file: file.stat().st_size for file in files}
    while files and (len(files) >= KEPT_FILES or sum(sizes[file] for file in files) > KEPT_BYTES):
        files.pop(0).unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _versions() -> str:
    return f"gpuctl {gpuctl_version()}, Python {platform.python_version()}, {platform.platform()}"
