"""The least permissions that commands need, as IAM policies."""

from collections.abc import Sequence
from typing import Any

from config.bucket import bucket_of
from config.cluster.cluster_file import Cluster
from operations.chosen_target import ChosenTarget
from provision.permissions.actions import COMMANDS, FEATURES, features_of, needed
from provision.permissions.policy import boundary_document, policy, split

__all__ = ["COMMANDS", "boundary_document"]


def policy_documents(
    chosen: ChosenTarget,
    *,
    cluster: Cluster | None = None,
    commands: Sequence[str] = COMMANDS,
    instance_profile: str | None = None,
) -> tuple[dict[str, Any], ...]:
    """Return the least IAM policy that these commands need; it calls no API.

    It is that of every cluster, or of this one. With `instance_profile` it allows to create no
    role. It is several policies if one would be longer than IAM allows.
    """
    features = frozenset(FEATURES)
    if cluster is not None:
        instance_profile = instance_profile or cluster.instance_profile
        features = features_of(cluster)
    if instance_profile is not None:
        features = features - {"role"} | {"profile"}
    actions = needed(commands, features)
    return split(policy(actions, bucket_of(chosen.backend), instance_profile))
