"""Progress on a terminal: a live block of the running steps; plain lines when piped."""

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from cli.render import live_block
from cli.terminal import can_redraw, print_line
from config.errors import OutputError
from config.progress import Progress
from config.quantities import elapsed
from operations.watcher import LoggingWatcher

if TYPE_CHECKING:
    from rich.live import Live

_MARKS = {"start": "…", "running": "…", "done": "✓", "failed": "✗"}
_SHOWN = 12  # lines of the live block: more than a screenful hides the question above it


class Printer(Protocol):
    """What prints notes and warnings, and makes control characters visible: cli/output.py.

    That imports this module.
    """

    def visible(self, text: str) -> str:
        """Return the text as it may reach a terminal."""

    def note(self, text: str) -> None:
        """Print what happens on the way to a result."""

    def warn(self, text: str) -> None:
        """Print one line of warning."""

    def complain(self, text: str) -> None:
        """Print the text on stderr, in every form of output."""


class ProgressView(LoggingWatcher):
    """The watcher of an operation on a terminal; safe to call from any thread.

    On a terminal, steps that run are a live block, and ended ones scroll above it; it begins with
    the first step. Elsewhere every start, end and new detail is one plain line. Progress goes to
    `to`, and nowhere without it; notes and warnings go where those of `out` go.
    """

    def __init__(self, out: Printer, to: TextIO | None) -> None:
        self._out = out
        self._to = to
        self._lock = threading.RLock()
        self._running: dict[tuple[str, str], tuple[Progress, float]] = {}
        self._last: dict[tuple[str, str], str] = {}
        self._is_live = to is not None and can_redraw(to)
        self._live: Live | None = None
        self._start_lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._running.clear()
            self._live.stop()

    def report(self, progress: Progress) -> None:
        """Show the step."""
        super().report(progress)
        if self._to is None:
            return
        with self._lock:
            key = (progress.stage, progress.subject)
            started = self._running.get(key, (progress, time.monotonic()))[1]
            ended = progress.state in {"done", "failed"}
            if ended:
                self._running.pop(key, None)
            else:
                self._running[key] = (progress, started)
            if not self._is_live:
                self._plain(key, progress, started)
        # without our lock: the thread that draws holds the console's lock and may wait for ours
        if self._is_live:
            with contextlib.suppress(OSError, OutputError):  # it is gone; the work goes on
                live = self._started_live()
                if ended:
                    live.console.print(self._line(progress, started), markup=False)

    def _started_live(self) -> "Live":
        """Return the live block; start it for the first step, so that it never hides a question."""
        with self._start_lock:
            if self._live is None:
                assert self._to is not None
                self._live = live_block.start(self._to, self._block)
            return self._live

    def note(self, text: str) -> None:
        """Print what happens on the way to the result."""
        super().note(text)
        self._out.note(text)

    def announce(self, text: str) -> None:
        """Print the text on stderr, also without progress."""
        super().announce(text)
        self._out.complain(f"gpuctl: {text}")

    def warn(self, text: str) -> None:
        """Print one line of warning on stderr."""
        super().warn(text)
        self._out.warn(text)

    def _plain(self, key: tuple[str, str], progress: Progress, started: float) -> None:
        line = f"{progress.stage}: {progress.subject}: {progress.state}"
        if progress.detail:
            line += f" ({progress.detail})"
        if self._last.get(key) == line:
            return
        self._last[key] = line
        if progress.state in {"done", "failed"}:
            line += f" in {elapsed(self._seconds(progress, started))}"
        with contextlib.suppress(OSError, OutputError):  # nobody reads it; the work goes on
            print_line(self._out.visible(line), self._to)

    def _line(self, progress: Progress, started: float) -> str:
        detail = f"  {progress.detail}" if progress.detail else ""
        took = elapsed(self._seconds(progress, started))
        mark = _MARKS[progress.state]
        return self._out.visible(
            f"{mark} {progress.stage:<10} {progress.subject:<44} {took:>7}{detail}"
        )

    def _seconds(self, progress: Progress, started: float) -> float:
        return time.monotonic() - started if progress.seconds is None else progress.seconds

    def _block(self) -> str:
        with self._lock:
            lines = [self._line(p, started) for p, started in self._running.values()]
        if len(lines) > _SHOWN:
            lines = [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more"]
        return "\n".join(lines)
