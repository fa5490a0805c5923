"""Make the machines of a cluster again that AWS reports as gone."""

from collections.abc import Sequence

from config.progress import silent
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.watcher import Watcher
from provision.access import check_new_machines
from provision.lease import join
from provision.records.record import load_inventory, read
from provision.up import plan, up


def make_again(
    here: ChosenTarget, cluster: str, names: Sequence[str], watcher: Watcher
) -> Inventory | None:
    """Make the lost machines of the cluster again, among them `names`; return its inventory.

    None if nothing can be made: the cluster is being removed, or it differs from its record.
    """
    target = here.cluster_target(cluster)
    record = read(cluster, target)
    if record is None:
        return None  # somebody removes the cluster
    fleet_plan = plan(record.resolved.cluster, target, silent)
    if not fleet_plan.plan.only_adds:
        watcher.warn(
            f"cluster {cluster} differs from its record, so its nodes are not made again;"
            " run `gpuctl up` with its file"
        )
        return None
    if not fleet_plan.plan.is_empty:
        bastion = fleet_plan.resolved.bastion_user_data
        key = check_new_machines(cluster, target, fleet_plan.plan.new_machines, bastion)
        watcher.note(f"-- {', '.join(names)}: gpuctl makes the lost machines again")
        join(up(fleet_plan, target, silent, key), names, record, target)
    return load_inventory(cluster, target)
