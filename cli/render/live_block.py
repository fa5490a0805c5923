"""The lines at the end of the terminal that change while an operation goes on."""

import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text


def start(to: TextIO, lines: Callable[[], str]) -> Live:
    """Show the lines on the terminal, as `lines` returns them four times a second.

    What is printed on this terminal meanwhile scrolls above them. A stdout or stderr that goes
    elsewhere still gets all that is printed on it.
    """
    live = Live(
        console=Console(file=to, highlight=False),
        refresh_per_second=4,
        get_renderable=lambda: Text(lines()),
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    live.start()
    return live
