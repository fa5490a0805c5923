"""Clusters whose machines need not boot: the API and Pulumi's engine alone."""

from config.cluster.resolved import Resolved
from config.progress import Reporter
from config.target import Target
from nodes.inventory import Inventory
from provision.setup.nodes_key import NodesKey


def nothing_boots(
    resolved: Resolved,
    inventory: Inventory,
    key: NodesKey,
    target: Target,
    report: Reporter,
    *,
    is_patient: bool = False,
) -> Inventory:
    """Return the inventory at once; stands for `bootstrap`, which waits."""
    del resolved, key, target, report, is_patient
    return inventory
