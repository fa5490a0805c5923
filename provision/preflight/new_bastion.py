"""The user data of a bastion that is made anew: colleagues log in to it from its first boot.

Otherwise only the machine with gpuctl's own key could make it ready. A bastion that exists keeps
its user data, whoever is granted access: other user data would replace it.
"""

from config.cluster.resolved import Resolved
from config.target import Target
from provision.aws.clients import client
from provision.aws.resources import exists, find_instances
from provision.setup.cloud_init import bastion_user_data
from provision.setup.machines import BASTION
from provision.setup.nodes_key import GRANTED
from provision.state.record import ClusterRecord


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
