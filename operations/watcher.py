"""Callbacks for what a caller may see of an operation while it goes on."""

import logging
from typing import Protocol

from config.progress import Progress

_LOGGER = logging.getLogger("gpuctl")


class Watcher(Protocol):
    """What a caller sees of an operation before its result. Any thread may call it."""

    def report(self, progress: Progress) -> None:
        """Show the step: it begins, goes on or ends."""

    def note(self, text: str) -> None:
        """Show what happens on the way to the result."""

    def announce(self, text: str) -> None:
        """Show what a caller has to know at once, also one who wants no progress."""

    def warn(self, text: str) -> None:
        """Show one line of warning."""


class LoggingWatcher:
    """Logs what happens with Python's logger `gpuctl`: the watcher of callers that name none."""

    def report(self, progress: Progress) -> None:
        """Log the step: its begin and end at level INFO, what it does meanwhile at DEBUG."""
        detail = f" ({progress.detail})" if progress.detail else ""
        level = logging.DEBUG if progress.state == "running" else logging.INFO
        _LOGGER.log(level, "%s: %s: %s%s", progress.stage, progress.subject, progress.state, detail)

    def note(self, text: str) -> None:
        """Log the text at level INFO."""
        _LOGGER.info("%s", text)

    def announce(self, text: str) -> None:
        """Log the text at level INFO."""
        _LOGGER.info("%s", text)

    def warn(self, text: str) -> None:
        """Log the text at level WARNING."""
        _LOGGER.warning("%s", text)
