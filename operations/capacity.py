"""Where an instance type is available, and its prices; nothing is reserved."""

from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision.capacity.offers import CapacityReport, capacity

__all__ = ["CapacityReport", "find"]


def find(
    here: ChosenTarget,
    instance_type: str,
    *,
    nodes: int = 1,
    watcher: Watcher = LoggingWatcher(),
) -> CapacityReport:
    """Return zones, reservations, blocks and prices of the type; `nodes` is the size of a block."""
    here.ensure_lab(watcher.report)
    return capacity(instance_type, nodes, here.target())
