"""The checks of ssh access to a cluster, and of the addresses in its network.

Colleagues log in to a new bastion from its first boot, by its user data. Otherwise only the machine
with gpuctl's own key could make it ready. A bastion that exists keeps its user data, whoever is
granted access: other user data would replace it.
"""

import ipaddress
import urllib.request

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.command_text import command_text
from config.errors import InputError
from config.target import Target
from infra.program.subnets import carve
from provision.aws.clients import client
from provision.aws.resources import exists, find_instances
from provision.setup.cloud_init import bastion_user_data
from provision.setup.machines import BASTION
from provision.setup.nodes_key import GRANTED
from provision.state.record import ClusterRecord


def needed_elastic_ips(cluster: Cluster) -> int:
    """Return the cluster's number of Elastic IPs: one per node, or one for its NAT gateway."""
    if cluster.network.nodes_are_public:
        return cluster.nodes
    return 0 if cluster.network.exists else 1


def check_access(cluster: Cluster, before: Resolved | None, target: Target) -> None:
    """Raise InputError if `network.access` changed, or cannot work with this target."""
    access = cluster.network.access
    if before and before.cluster.network.access != access:
        raise InputError(
            f"network.access: cluster '{cluster.name}' was created with"
            f" {before.cluster.network.access}, and cannot change to {access}",
            f"remove it first: {command_text('gpuctl down {}', cluster.name)}",
        )
    if access == "private" and target.vpcs_are_isolated:
        raise InputError(
            f"network.access: private addresses of target {target.name} cannot be reached from"
            " outside its VPCs",
            f"use bastion or elastic-ip for target {target.name}",
        )


def check_addresses(cluster: Cluster, taken: int) -> None:
    """Raise InputError if the cluster's new network has no room for `taken` addresses per node."""
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
    """Return the address range that may use ssh, empty for none.

    Raises InputError if the caller's address cannot be found out.
    """
    if cluster.network.uses_session_manager:
        return ""
    allowed = cluster.network.ssh_from
    if allowed is not None:
        return allowed
    if before is not None and before.cluster.network.ssh_from is None:
        return before.ssh_from
    if target.caller_address is not None:
        return f"{target.caller_address}/32"
    if target.endpoint is not None:
        raise InputError(
            "network.ssh_from: this endpoint does not report your address",
            "set it to the IPv4 range that may use ssh",
        )
    return f"{_public_address()}/32"


def _public_address() -> str:
    """Return the address from which AWS sees this client, read from AWS's service for that."""
    try:
        with urllib.request.urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
            return str(ipaddress.IPv4Address(answer.read(64).decode().strip()))
    except (OSError, ValueError) as error:
        raise InputError(
            f"network.ssh_from: your public address cannot be found out ({error})",
            "set it to the IPv4 range that may use ssh",
        ) from error


def add_granted_keys(resolved: Resolved, record: ClusterRecord, target: Target) -> Resolved:
    """Return `wanted` with the keys of colleagues in the bastion's user data if it is made anew.

    `record` is that of the cluster. AWS is asked for the bastion only if keys were
    granted and its user data stay as they were.
    """
    cluster, before = resolved.cluster, record.resolved
    keys = [grant.key for grant in record.grants if not grant.is_revoked]
    # Also without any: the last bastion's user data may have a key that was revoked since.
    has_granted = bool(keys) or GRANTED in before.bastion_user_data
    if not has_granted or not cluster.network.has_bastion:
        return resolved
    is_same = resolved.bastion_user_data == before.bastion_user_data
    if is_same and _exists(before, target):
        return resolved
    # The mark lets `gpuctl grant` and `revoke` replace these lines as they do all granted ones.
    lines = [f"{key} {GRANTED}" for key in keys]
    text = bastion_user_data(cluster, resolved.public_key, *lines)
    return resolved.model_copy(update={"bastion_user_data": text})


def _exists(before: Resolved, target: Target) -> bool:
    name = before.cluster.name
    instances = find_instances(client(target, "ec2"), name, before.id)
    return any(exists(instance) for instance in instances if instance.name == f"{name}-{BASTION}")
