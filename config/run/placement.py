"""The placement of ranks on nodes and cores."""

from typing import Literal

from pydantic import Field

from config.models import Model


class Placement(Model):
    """The placement of ranks by mpirun."""

    by: Literal["node", "slot"] = Field(
        default="slot",
        description="`slot`: a node is filled before the next; `node`: ranks go round the nodes.",
    )
    bind: Literal["none", "core", "numa", "socket"] = Field(
        default="none", description="What a rank is bound to."
    )
