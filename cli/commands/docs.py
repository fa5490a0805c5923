"""`gpuctl docs`: where the documentation is on this machine."""

import typer

from cli.options import output
from config import explanation


def docs(context: typer.Context) -> None:
    """Print where the documentation is on this machine.

    $ gpuctl docs
    """
    page = explanation.documents() / "index.md"
    output(context).show({"path": str(page)}, [str(page)])
