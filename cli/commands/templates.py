"""`gpuctl templates`: what a run file can extend."""

from typing import TYPE_CHECKING

import typer

from cli.options import output
from config.loading import templates as loading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from config.loading.templates import Template


def templates(context: typer.Context) -> None:
    """List the run files that `extends: NAME` takes.

    They are gpuctl's own, and yours.

    $ gpuctl templates
    """
    out, known = output(context), loading.templates()
    out.show([vars(template) for template in known], _lines(known, out))


def _lines(templates: "tuple[Template, ...]", out: "Output") -> "Iterator[str]":
    rows = (
        (
            template.name,
            template.type,
            template.summary + (f" ({template.path})" if template.is_users else ""),
        )
        for template in templates
    )
    yield from out.table(("TEMPLATE", "TYPE", "SUMMARY"), rows, drop=())
