"""The nodes that can be checked and healed: also those of a cluster whose `up` failed."""

from infra.stack.installation import find_engine
from infra.stack.stack import Stack
from nodes.inventory import Inventory
from provision.aws.account import resolve_credentials
from provision.setup.bootstrap import inventory_of
from provision.state.store import ClusterStore


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
