"""Public figures of nccl-tests by instance type, number of nodes, collective and size."""

from datetime import date
from functools import cache
from pathlib import Path

import yaml

from config.catalogue.instance_types import Fact

SHARE = 0.85
"""The share of a public figure that a run must reach.

Published figures are of tuned clusters and of the versions of their day, so the share is below 1.
The value is a choice of gpuctl.
"""

_FILE = Path(__file__).parent / "reference_figures.yaml"


class Figure(Fact):
    """A public figure: `busbw` is in GB/s; `read` is the day on which it was read at `source`."""

    instance_type: str
    nodes: int
    collective: str
    size: str
    busbw: float
    source: str
    read: date


@cache
def reference_figures() -> tuple[Figure, ...]:
    """Return all figures in the order of the file."""
    return tuple(Figure.model_validate(entry) for entry in yaml.safe_load(_FILE.read_text()))


def figures_of(instance_type: str, nodes: int, collective: str) -> tuple[Figure, ...]:
    """Return the known figures of the collective on this many nodes of the type."""
    key = (instance_type, nodes, collective)
    return tuple(
        figure
        for figure in reference_figures()
        if (figure.instance_type, figure.nodes, figure.collective) == key
    )
