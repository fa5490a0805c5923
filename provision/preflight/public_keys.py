"""The public keys that a cluster's machines accept from their first boot."""

from config.cluster.resolved import Resolved
from config.target import Target
from nodes.identity import cluster_key, has_cluster_key
from nodes.keys import ensure_key
from provision.setup.nodes_key import ensure_nodes_key
from provision.state.shared import cluster_folder


def public_keys(
    name: str, before: Resolved | None, target: Target, *, refresh: bool
) -> tuple[str, str]:
    """Return the public key of the cluster, and that of its nodes; make those of a new cluster.

    On a colleague's machine, which has no private key of the cluster, they are the record's. The
    nodes' one is in the user data of nodes, and is the record's too unless `refresh`: other user
    data replace every node.
    """
    place = cluster_folder(name, target)
    if before is not None and not has_cluster_key(place):
        return before.public_key, before.nodes_public_key
    public = ensure_key(cluster_key(place), f"gpuctl {name}")
    if before is not None and not refresh:
        return public, before.nodes_public_key
    return public, ensure_nodes_key(place, name).public
