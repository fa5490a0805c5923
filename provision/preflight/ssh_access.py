"""Whether the way into a cluster, and the addresses in it, can be as asked for."""

import ipaddress
import urllib.request

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import InputError
from config.target import Target
from infra.program.subnets import carve


def needed_elastic_ips(cluster: Cluster) -> int:
    """How many the cluster needs: each node's own, or that of a NAT gateway of its own."""
    if cluster.network.nodes_are_public:
        return cluster.nodes
    return 0 if cluster.network.exists else 1


def check_access(cluster: Cluster, before: Resolved | None, target: Target) -> None:
    """The way in can be gone, and is the one that the cluster was made with; else InputError."""
    access = cluster.network.access
    if before and before.cluster.network.access != access:
        raise InputError(
            f"network.access: cluster '{cluster.name}' was made with"
            f" {before.cluster.network.access}, and cannot become {access}",
            f"remove it first: `gpuctl down {cluster.name}`",
        )
    if access == "private" and target.provider_address is not None:
        raise InputError(
            "network.access: the lab's private addresses cannot be reached from outside its VPCs",
            "use bastion or elastic-ip in the lab",
        )


def check_addresses(cluster: Cluster, taken: int) -> None:
    """A network of the cluster's own has room for every node, at `taken` addresses each.

    InputError where it has not.
    """
    if cluster.network.exists:
        return
    room = carve(cluster.network.cidr).node_addresses // taken
    if room < cluster.nodes:
        raise InputError(
            f"network.cidr: {cluster.network.cidr} has addresses for {room} nodes,"
            f" {cluster.nodes} are asked for",
            "use a larger range, /16 for the most nodes",
        )


def ssh_source_range(cluster: Cluster, target: Target, before: Resolved | None) -> str:
    """Who may ssh in, as a range, empty for nobody; InputError where that cannot be known."""
    if cluster.network.uses_session_manager:
        return ""
    asked = cluster.network.ssh_from
    if asked is not None:
        return asked
    if before is not None and before.cluster.network.ssh_from is None:
        return before.ssh_from
    if target.caller_address is not None:
        return f"{target.caller_address}/32"
    if target.endpoint is not None:
        raise InputError(
            "network.ssh_from: your address is not known to this endpoint",
            "set it to the IPv4 range that may ssh in",
        )
    return f"{_public_address()}/32"


def _public_address() -> str:
    """The address that AWS sees this client come from, asked of AWS's own service."""
    try:
        with urllib.request.urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
            return str(ipaddress.IPv4Address(answer.read(64).decode().strip()))
    except (OSError, ValueError) as error:
        raise InputError(
            f"network.ssh_from: your public address cannot be found out ({error})",
            "set it to the IPv4 range that may ssh in",
        ) from error
