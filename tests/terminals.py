"""Real terminals for what runs in the test's own process."""

import os
import sys
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout

import pytest

from cli.main import app

END_OF_INPUT = "\x04"
_END = "\x00"
"""What ends a text on a screen: the kernel passes on what was written in parts, and later."""


@contextmanager
def terminal_as_stdout() -> Iterator[Callable[[], str]]:
    """Make stdout a terminal; yield a function that reads the text on it since its last call."""
    person, program = os.openpty()
    tty.setraw(program)  # it changes no line ends
    with (
        os.fdopen(person, "rb", buffering=0) as screen,
        os.fdopen(program, "w", encoding="utf-8") as stdout,
        redirect_stdout(stdout),
    ):

        def text() -> str:
            stdout.write(_END)
            stdout.flush()
            seen = b""
            while not seen.endswith(_END.encode()):
                seen += screen.read(65536)
            return seen.decode().removesuffix(_END)

        yield text


def lines_on_terminal(*words: str, columns: int = 80) -> list[str]:
    """Run `gpuctl` with these words in a terminal of so many columns; return its lines."""
    with pytest.MonkeyPatch.context() as patch, terminal_as_stdout() as screen:
        patch.setenv("COLUMNS", f"{columns}")
        app(list(words), prog_name="gpuctl", standalone_mode=False)
        return screen().splitlines()


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Make stdin a terminal on which a person types the text, and then ends the input."""
    with ExitStack() as ends:

        def type_text(text: str) -> None:
            person, program = os.openpty()
            ends.callback(os.close, person)
            stdin = ends.enter_context(os.fdopen(program, encoding="utf-8"))
            os.write(person, f"{text}{END_OF_INPUT}".encode())
            monkeypatch.setattr(sys, "stdin", stdin)

        yield type_text
