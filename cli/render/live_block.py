"""The lines at the end of the terminal that change while an operation goes on."""

from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text


def start(to: TextIO, lines: Callable[[], str]) -> Live:
    """Show the lines on the terminal, as `lines` returns them four times a second."""
    console = Console(file=to, highlight=False)
    live = Live(console=console, refresh_per_second=4, get_renderable=lambda: Text(lines()))
    live.start()
    return live
