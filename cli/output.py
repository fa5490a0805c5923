"""The only place that prints: on stdout or stderr, as text or JSON."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from cli.render import text_table
from cli.render.progress import ProgressView
from cli.terminal import can_redraw, json_text, print_line, shown
from config.errors import InputError, OutputError

REFRESH_S = 5.0
"""Seconds between two drawings of a live table; nodes send a sample as often
(engine/agent/metrics/sampler.py)."""


@dataclass(frozen=True)
class Output:
    """A command's output: text, or one JSON document with `as_json`.

    With `as_json` stdout has the document and nothing else. `is_quiet` leaves out progress, never
    results, warnings and errors. `is_raw`: control characters pass as they are. `program` begins
    each command that is shown for a person: `gpuctl` with the options that choose the target.
    """

    as_json: bool = False
    is_quiet: bool = False
    no_color: bool = False
    is_raw: bool = False
    program: str = "gpuctl"

    def show(self, document: Any, lines: Iterable[str]) -> None:
        """Print a result on stdout: the document with `as_json`, else the lines."""
        if self.as_json:
            text = json.dumps(document, indent=2, default=str, ensure_ascii=False)
            print_line(json_text(text))
        else:
            text = "\n".join(lines)
            if text:
                self.say(text)

    def say(self, text: str) -> None:
        """Print a part of a result on stdout, in gpuctl's own words; nothing with `as_json`."""
        self.pass_on(self.with_options(text))

    def pass_on(self, text: str) -> None:
        """Print what a job or a node printed, or a file's text; nothing with `as_json`."""
        if not self.as_json:
            print_line(self.visible(text))

    def rewrite(self, text: str) -> None:
        """Show the text in the terminal's last row, in place of the text of the last call.

        It is cut at the terminal's width and has no colours.
        """
        row = shown(text, is_plain=True)[: shutil.get_terminal_size().columns - 1]
        print(f"\r\033[K{row}", end="", flush=True)

    def redraw(self, lines: Sequence[str]) -> None:
        """Show the lines at the top of the terminal, in place of all that is on it.

        What does not fit is cut off, and there are no colours.
        """
        size = shutil.get_terminal_size()
        rows = (shown(line, is_plain=True)[: size.columns] for line in lines[: size.lines - 1])
        print("\033[H\033[2J" + "\n".join(rows), flush=True)

    def watch(self, lines: Callable[[], Sequence[str]], every_s: float = REFRESH_S) -> None:
        """Draw the lines again every `every_s` seconds, until Ctrl-C.

        Raises InputError if nothing can be drawn again: with `as_json`, and without a terminal.
        """
        if self.as_json or not can_redraw(sys.stdout):
            raise InputError("--watch needs a terminal", "leave it out, and repeat the command")
        with suppress(KeyboardInterrupt):  # the ordinary end of a live table
            while True:
                self.redraw([self.with_options(line) for line in lines()])
                time.sleep(every_s)

    def note(self, text: str) -> None:
        """Print what happens on the way to a result; nothing with `as_json` or `is_quiet`.

        If stdout cannot be written, the work goes on; its result then raises the error.
        """
        if not self.is_quiet:
            with suppress(OSError, OutputError):  # the result raises it
                self.say(text)

    def warn(self, text: str) -> None:
        """Print one line of warning on stderr."""
        self.complain(f"gpuctl: warning: {text}")

    def complain(self, text: str) -> None:
        """Print the text on stderr, in every form of output; go on if it cannot be written."""
        with suppress(OSError, OutputError):  # there is nowhere to report it
            print_line(self.visible(self.with_options(text)), sys.stderr)

    def with_options(self, text: str) -> str:
        """Return gpuctl's text with the target's options in each command that it shows.

        A command is in backticks; one that has options already stays as it is, and so do those of
        the lab itself. A region that the command names counts.
        """

        def complete(shown: re.Match[str]) -> str:
            has_region = "--region " in shown[1]
            program = re.sub(r" --region \S+", "", self.program) if has_region else self.program
            return f"`{program} {shown[1]}`"

        return re.sub("`gpuctl (?!lab )([a-z][^`]*)`", complete, text)

    def record(self, value: str, to: TextIO | None = None) -> None:
        """Print a JSON text as one line, on stdout or `to`."""
        print_line(json_text(value), to)

    def confirm(self, question: str, yes: bool = False, option: str = "--yes") -> None:
        """Ask the person on stderr, unless `yes`.

        InputError when they answer no, or no terminal can ask; `option` answers yes on the
        command line.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            hint = f"add {option} if that is what you want"
            raise InputError(f"there is no terminal to ask on: {question}", hint)
        if self.ask(f"{question} [y/N]: ").strip().lower() not in {"y", "yes"}:
            raise InputError("nothing was done", "answer y to go on")

    def ask(self, question: str) -> str:
        """Print the question on stderr; return the line that the person types, "" at the end."""
        print(self.visible(question), end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()

    def progress(self) -> ProgressView:
        """Return a view of progress, to be entered: live on a terminal, plain lines elsewhere.

        It is on stderr with `as_json`, and shows nothing with `is_quiet`.
        """
        to = sys.stderr if self.as_json else sys.stdout
        return ProgressView(self, None if self.is_quiet else to)

    def table(
        self,
        head: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        drop: Sequence[str],
        right: Sequence[str] = (),
        sentences: str = "",
    ) -> list[str]:
        """Return the lines of a table that fits the terminal; in a pipe every row is one line.

        A terminal that is too narrow lacks the columns of `drop`, the first of them first. The
        column `sentences` is wrapped before.
        """
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return text_table.table_lines(head, rows, width, right, drop, sentences)

    @property
    def has_color(self) -> bool:
        """Return whether gpuctl colours its lines on stdout.

        The variables are those of https://no-color.org (2026-11-22) and
        https://bixense.com/clicolors (2026-11-28).
        """
        if self.as_json or self._is_plain:
            return False
        return _is_color_forced() or sys.stdout.isatty()

    def visible(self, text: str) -> str:
        """Return the text as it may reach a terminal."""
        return text if self.is_raw else shown(text, self._is_plain)

    @property
    def _is_plain(self) -> bool:
        if self.no_color or os.environ.get("NO_COLOR"):
            return True
        chosen = os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb"
        return chosen and not _is_color_forced()


def _is_color_forced() -> bool:
    forced = os.environ.get("CLICOLOR_FORCE", "") not in ("", "0")
    return forced or bool(os.environ.get("FORCE_COLOR"))
