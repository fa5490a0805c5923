"""`gpuctl schema cluster|run`: JSON Schema, for editors."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from cli.options import output
from config import schema as files


class FileKind(StrEnum):
    """The files that people write."""

    CLUSTER = "cluster"
    RUN = "run"


def schema(
    context: typer.Context,
    kind: Annotated[FileKind, typer.Argument(metavar="cluster|run", help="Which file's schema.")],
) -> None:
    """Print the JSON Schema of cluster or run files.

    $ gpuctl schema run > run.schema.json
    """
    replace(output(context), as_json=True).show(files.json_schema(kind.value), ())
