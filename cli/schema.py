"""`gpuctl schema cluster|run`: JSON Schema, for editors."""

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """The files that people write."""

    CLUSTER = "cluster"
    RUN = "run"


def schema(kind: Annotated[Kind, typer.Argument(help="Which file's schema.")]) -> None:
    """Print the JSON Schema of cluster or run files."""
    from cli.terminal import say_json
    from config.schema import json_schema

    say_json(json_schema(kind.value))
