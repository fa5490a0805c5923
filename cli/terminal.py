"""Text for the terminal, for commands that must start fast (no rich here).

What jobs, nodes, AWS and its tags say may hold control characters that retitle, clear or rewrite a
reader's terminal: they are shown, not obeyed.
"""

import io
import os
import re
import sys
from typing import Any, TextIO

from config.errors import OutputError

# Colours pass (SGR). C0 but for tab and newline, DEL and C1; and what turns the direction of text.
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROLS = re.compile(r"\x1b\[[0-9;:]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(text: str, is_plain: bool = False) -> str:
    """Return the text with control characters made visible, escape as `^[`.

    Colours stay, unless `is_plain`.
    """
    if text.replace("\n", "").isprintable():  # lines without colours, as most are
        return text
    return _CONTROLS.sub(_visible_plain if is_plain else _visible, text)


def can_redraw(stream: TextIO) -> bool:
    """Return whether the stream is a terminal on which lines can be drawn again."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _visible(match: "re.Match[str]") -> str:
    control = match[0]
    if len(control) > 1:
        return control
    code = ord(control)
    if code < 32 or code == 127:
        return f"^{chr(code ^ 64)}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _visible_plain(match: "re.Match[str]") -> str:
    return "" if len(match[0]) > 1 else _visible(match)


def json_text(text: str) -> str:
    """Return the JSON text with all that could act on a terminal escaped; its values are equal."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_line(text: str, to: TextIO | None = None) -> None:
    """Print the text and its newline on `to`, or on stdout, in one write.

    Lines that several threads print then stay whole. `print` alone writes its newline by itself.
    """
    print(f"{text}\n", end="", file=to, flush=True)


class _NamedStream(io.FileIO):
    """stdout or stderr, whose errors name it: those of a file of gpuctl's look alike."""

    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self._stream_name = name

    def write(self, data: Any, /) -> Any:
        """Write what fits, as `io.FileIO` does; OutputError for any error but a closed pipe."""
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader has gone
            raise
        except OSError as error:
            name = self._stream_name
            raise OutputError(
                f"{name} cannot be written: {error.strerror}",
                f"send {name} to another file, or to /dev/null; `gpuctl status` shows what exists",
            ) from error


def name_streams() -> None:
    """Let an error of stdout or stderr be an OutputError that names the stream.

    A pipe that its reader has closed stays a BrokenPipeError.
    """
    if not isinstance(getattr(sys.stdout.buffer, "raw", None), _NamedStream):
        sys.stdout, sys.stderr = _named(sys.stdout, "stdout"), _named(sys.stderr, "stderr")


def _named(stream: TextIO, name: str) -> TextIO:
    stream.flush()
    by_lines = name == "stderr" or stream.isatty()
    binary = io.BufferedWriter(_NamedStream(stream, name))
    return io.TextIOWrapper(binary, stream.encoding, stream.errors, line_buffering=by_lines)


def discard_unwritten() -> None:
    """Discard what stdout and stderr cannot write: Python's flush at the end would fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, OutputError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
