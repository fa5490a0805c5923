"""The collectives of nccl-tests; apart from the run file, whose models take long to import."""

from typing import Literal

Collective = Literal[
    "all_reduce",
    "all_gather",
    "alltoall",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
]
