"""Who may use a cluster: the keys of colleagues, given and taken away."""

from dataclasses import dataclass
from datetime import datetime

from nodes.keys import fingerprint
from operations.chosen_target import ChosenTarget
from provision import access
from provision.access import Access

__all__ = ["Access"]

_KEYS = "its users are those of the machines: add their keys there as you always do"


@dataclass(frozen=True)
class Member:
    """A key that has access to a cluster. `since` is None for gpuctl's own key.

    `is_revoked` keys, and those that `unconfirmed` machines have not got yet, are listed until all
    machines have confirmed the change.
    """

    name: str
    fingerprint: str
    key: str
    since: datetime | None = None
    is_revoked: bool = False
    unconfirmed: tuple[str, ...] = ()


def members(chosen: ChosenTarget, cluster: str) -> tuple[Member, ...]:
    """Return gpuctl's own key of the cluster, then the keys of colleagues."""
    own, grants = access.members(cluster, chosen.cluster_target(cluster, instead=_KEYS))
    return (
        Member(own.name, own.fingerprint, own.key),
        *(
            Member(
                key.name, fingerprint(key.key), key.key, key.since, key.is_revoked, tuple(key.open)
            )
            for key in grants
        ),
    )


def grant(chosen: ChosenTarget, cluster: str, key: str) -> Access:
    """Give a colleague's key access to all machines of the cluster, now and later.

    `key` is the path of a public key, the key itself, or the name or fingerprint of a key that was
    granted before, to any cluster. Raises InputError before any machine is changed, NodeError with
    the machines that the key has not reached.
    """
    return access.grant(cluster, key, chosen.cluster_target(cluster, instead=_KEYS))


def revoke(chosen: ChosenTarget, cluster: str, key: str) -> Access:
    """Take the key's access away from all machines, and end the connections that it has open.

    Raises InputError for a key that was not granted, NodeError with the machines that may still
    have the key.
    """
    return access.revoke(cluster, key, chosen.cluster_target(cluster, instead=_KEYS))
