"""Replace single nodes of a cluster; the others, their ranks and the cluster's resources stay.

Also nodes of a cluster whose `up` failed can be checked and replaced.
"""

from collections.abc import Callable, Sequence

from config.errors import InputError
from config.progress import Progress, Reporter
from config.target import Target
from infra.stack.installation import find_engine
from infra.stack.stack import Stack
from nodes.inventory import Inventory, Node
from provision.access import check_new_machines
from provision.aws.account import resolve_credentials
from provision.aws.clients import client
from provision.lease import join
from provision.nodes.spares import Boot, check_others_stay, terminate
from provision.setup.bootstrap import bootstrap, inventory_of
from provision.setup.machines import BASTION
from provision.state.record import unknown_cluster
from provision.state.store import ClusterStore
from provision.up import plan, up


class ClusterDiffers(InputError):
    """The error that a cluster differs from its record: with new nodes other ones would change."""


def replace_nodes(
    name: str,
    nodes: Sequence[Node],
    target: Target,
    report: Reporter,
    *,
    announce: Callable[[], None] = lambda: None,
    boot: Boot = bootstrap,
) -> Inventory:
    """Terminate the machines of these nodes, make all missing ones again; return the new inventory.

    Missing are these, and those that AWS reports as gone. A node keeps its name and rank, placement
    group, and claim or reservation; its address, host key and instance are new. All nodes are
    checked as by `up`, and the new ones end when the others do. The other machines stay as they
    are: ClusterDiffers, before anything ends, if the cluster differs from its record. `announce` is
    called before the first change; there is none if no machine is missing. `boot` is that of `up`.
    """
    store = ClusterStore(target)
    record = store.record(name)
    if record is None:
        raise unknown_cluster(name, ())
    cluster = record.resolved.cluster
    fleet_plan = plan(cluster, target, report)
    if not fleet_plan.plan.only_adds:
        raise ClusterDiffers(
            f"cluster {name} differs from its record, so that other nodes would change too",
            "run `gpuctl up` with its file first",
        )
    if not nodes and fleet_plan.plan.is_empty:
        return store.inventory(name)
    ending = {*fleet_plan.plan.new_machines, *(node.name for node in nodes)}
    key = check_new_machines(name, store, ending, fleet_plan.resolved.bastion_user_data)
    announce()
    if nodes:
        for node in nodes:
            report(Progress("destroy", node.name, "running", node.instance_id))
        terminate(client(target, "ec2"), [node.instance_id for node in nodes])
        for node in nodes:
            report(Progress("destroy", node.name, "done", node.instance_id))
        fleet_plan = plan(cluster, target, report)
        check_others_stay(fleet_plan.plan, name)
    inventory = up(fleet_plan, target, report, key, boot)
    join(inventory, set(fleet_plan.plan.new_machines) - {BASTION}, target)
    return inventory


def existing_nodes(name: str, store: ClusterStore) -> Inventory:
    """Return the cluster's nodes; after a failed `up` those that it has launched.

    Pulumi's state has the latter. Raises InputError if the cluster is unknown, or if an `up` that
    failed or still works has launched no whole cluster.
    """
    record = store.record(name)
    if record is None or record.status != "failed":
        return store.inventory(name)
    target = resolve_credentials(store.target)
    fleet = Stack(name, target, find_engine(lambda _: None)).fleet()
    if fleet is None:
        return store.inventory(name)
    store.fetch_host_keys(name)
    return inventory_of(record.resolved, fleet, target)
