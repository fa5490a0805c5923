"""Runs whose number of nodes is a range: `nodes: {min, max}`, and torchrun's `nnodes`."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, Tag

from config.cluster.cluster_rules import Data
from config.mistakes import Mistake
from config.models import BY_SHAPE, MAPPING, SCALAR, Model

MOST_NODES = 512
MOST_SIZES = 64
"""The most sizes below the largest one: gpuctl plans each of them before the run starts."""
NNODES = r"^[1-9][0-9]{0,2}\.\.[1-9][0-9]{0,2}$"

_Number = Annotated[int, Field(ge=1, le=MOST_NODES)]


class NodeRange(Model):
    """The numbers of nodes with which a run may go on."""

    min: _Number = Field(description="The fewest nodes.")
    max: _Number = Field(description="The most nodes; it starts on as many as are free.")


NodeCount = Annotated[
    Annotated[_Number, Tag(SCALAR)] | Annotated[NodeRange, Tag(MAPPING)], BY_SHAPE
]

_NEEDS_ONE_NUMBER = {
    "nccl-tests": "its bandwidths are those of one number of nodes",
    "ps-worker": "its commands count on the number of servers and workers",
}


def elastic_mistakes(data: Data, run_type: str) -> Iterator[Mistake]:
    """Yield the mistakes in ranges of nodes of a run of this type."""
    if run_type == "torchrun":
        yield from _nnodes(data)
    written = data.get("nodes")
    if not isinstance(written, dict):
        return
    if run_type in _NEEDS_ONE_NUMBER:
        message = f"type {run_type} takes no range of nodes: {_NEEDS_ONE_NUMBER[run_type]}"
        yield Mistake("E247", message, "write one number", ("nodes",))
        return
    least, most = written.get("min"), written.get("max")
    if type(least) is not int or type(most) is not int or not 1 <= least <= MOST_NODES >= most >= 1:
        return
    if least > most:
        message = f"'nodes' goes from {least} to {most}, which ends before it begins"
        yield Mistake("E222", message, f"write {{min: {most}, max: {least}}}", ("nodes",))
    elif most - least > MOST_SIZES:
        message = (
            f"'nodes' goes from {least} to {most}: gpuctl plans every size beforehand, at most"
            f" {MOST_SIZES} below 'max'"
        )
        yield Mistake("E202", message, f"write min: {most - MOST_SIZES}", ("nodes", "min"))


def _nnodes(data: Data) -> Iterator[Mistake]:
    written = data.get("nnodes")
    if written is None:
        return
    if "nodes" in data:
        message = "'nodes' and 'nnodes' both say how many nodes"
        yield Mistake("E223", message, "remove one of them", ("nodes",), on_key=True)
    if not isinstance(written, str) or not re.fullmatch(NNODES, written):
        return
    fewest, most = (int(number) for number in written.split(".."))
    if most > MOST_NODES:
        message = f"'nnodes' ends at {most}, above {MOST_NODES}"
        yield Mistake("E202", message, f"use 1 to {MOST_NODES}", ("nnodes",))
    elif fewest > most:
        message = f"'nnodes' is '{written}', which ends before it begins"
        yield Mistake("E222", message, f"write {most}..{fewest}", ("nnodes",))
