"""`gpuctl validate FILE…`: every complaint about cluster and run files, before anything costs."""

from pathlib import Path
from typing import Annotated

import typer

from config.errors import InvalidFiles


def validate(
    files: Annotated[list[Path], typer.Argument(help="Cluster and run files, manifests.")],
) -> None:
    """Check cluster and run files; each complaint is one line, exit 2 if there is any."""
    from cli.terminal import say
    from config.loading.load import check

    complaints = []
    for path in files:
        found = check(path)
        errors = [d for d in found if d.severity == "error"]
        complaints += errors
        for diagnostic in found:
            if diagnostic.severity == "warning":
                say(str(diagnostic))
        if not errors:
            say(f"{path}: ok")
    if complaints:
        raise InvalidFiles(complaints)
