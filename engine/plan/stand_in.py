"""The inventory that a cluster would have: a run is planned with it before the cluster exists."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from config.catalogue.instance_types import catalogue
from config.cluster.cluster_file import Cluster
from config.cluster.job_software import planned_software
from nodes.inventory import Inventory, Node

_FIRST_ADDRESS = IPv4Address("198.18.0.1")
"""The placeholders for private addresses are in a range that is nobody's network (RFC 2544)."""


def stand_in(
    cluster: Cluster, *, nodes: int | None = None, gpus: int = 0, region: str | None = None
) -> Inventory:
    """Return the inventory that the cluster would have, as far as the catalogue knows its type.

    It has so many `nodes`, by default all. `gpus` are those of a node of a type that the catalogue
    does not have. Addresses are placeholders.
    """
    count = cluster.nodes if nodes is None else nodes
    return Inventory(
        cluster=cluster.name,
        region=cluster.region or region or "",
        zone=next(iter(cluster.capacity.zones), ""),
        instance_type=cluster.instance_type,
        bastion=None,
        nodes=tuple(_nodes(cluster, count, gpus)),
        folder=Path(),
        is_spot=cluster.capacity.type == "spot",
        root_gib=cluster.storage.root.gib,
        shared=cluster.storage.shared.path if cluster.storage.shared else "",
    )


def _nodes(cluster: Cluster, count: int, gpus: int) -> Iterator[Node]:
    entry = catalogue().get(cluster.instance_type)
    efa, software = 0, dict[str, str]()
    if entry is not None:  # nothing is known of another type's nodes
        software = planned_software(cluster)
        gpus = entry.gpu.count
        efa = 0 if cluster.network.efa == "off" else entry.network.max_efa
    for rank in range(count):
        yield Node(
            rank=rank,
            name=f"node{rank}",
            instance_id="not-launched",
            private_ip=str(_FIRST_ADDRESS + rank),
            gpus=gpus,
            slots=max(1, gpus),
            efa=efa,
            software=software,
        )
