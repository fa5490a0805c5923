"""The nodes that can be checked and healed: also those of a cluster whose `up` failed."""

from config.target import Target
from infra.stack.installation import find_engine
from infra.stack.stack import Stack
from nodes.inventory import Inventory
from provision.aws.account import resolve_credentials
from provision.setup.bootstrap import inventory_of
from provision.state import shared
from provision.state.record import folder, load_inventory, read


def existing_nodes(name: str, target: Target) -> Inventory:
    """Return the cluster's nodes; after a failed `up` those that it has launched.

    Pulumi's state has the latter. Raises InputError if the cluster is unknown, or if an `up` that
    failed or still works has launched no whole cluster.
    """
    record = read(name, target)
    if record is None or record.status != "failed":
        return load_inventory(name, target)
    target = resolve_credentials(target)
    fleet = Stack(name, target, find_engine(lambda _: None)).fleet()
    if fleet is None:
        return load_inventory(name, target)
    shared.pull(name, target)
    inventory = inventory_of(record.resolved, fleet, folder(name, target))
    if record.resolved.cluster.network.uses_session_manager:
        return inventory.model_copy(update={"proxy": target.session_proxy})
    return inventory
