"""Clusters whose machines need not boot: the API and Pulumi's engine alone."""

from pathlib import Path

from config.cluster.resolved import Resolved
from config.progress import Reporter
from config.target import Target
from infra.fleet import Fleet
from nodes.inventory import Inventory
from provision.setup.bootstrap import inventory_of


def nothing_boots(
    resolved: Resolved,
    fleet: Fleet,
    folder: Path,
    target: Target,
    report: Reporter,
    *,
    is_patient: bool = False,
) -> Inventory:
    """Return the inventory at once; stands for `provision.spares.bootstrap`, which waits."""
    del target, report, is_patient
    return inventory_of(resolved, fleet, folder)
