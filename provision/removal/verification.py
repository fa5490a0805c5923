"""The proof that nothing of a cluster is left: AWS's lists, asked more than once."""

import time
from dataclasses import dataclass

from config.cluster.resolved import CLUSTER_TAG, ID_TAG
from config.command_text import command_text
from config.errors import CloudError
from config.target import Target
from provision.aws.clients import client
from provision.aws.resources import KINDS, Kind, find_all, find_instances

ROUNDS = 2
PAUSE_S = 10.0
"""The pause between two rounds. AWS lists changes with a delay for which it promises no time
(https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html, 2026-11-23)."""


@dataclass(frozen=True)
class Verification:
    """AWS's answers about a cluster that was removed.

    `tags` are those that were searched for. `kinds` are the kinds of resources that AWS listed in
    each of `rounds` rounds. `instances` maps the instances that AWS still remembers, about an hour
    after their end, to their state.
    """

    region: str
    tags: dict[str, str]
    kinds: tuple[str, ...]
    rounds: int
    instances: dict[str, str]


def verify(name: str, cluster_id: str, target: Target) -> Verification:
    """Ask AWS for every kind of resource with the cluster's name and id; return its answers.

    Raises CloudError if AWS lists one, or if the credentials may not list a kind.
    """
    denied: dict[str, None] = {}

    def note(kind: Kind) -> None:
        denied[kind.unlisted] = None

    left: dict[str, None] = {}
    for attempt in range(ROUNDS):
        if attempt:
            time.sleep(PAUSE_S)
        resources = find_all(target, name, cluster_id=cluster_id, on_denied=note)
        left = {
            f"{resource.kind} {resource.id} ({resource.state or 'exists'})": None
            for resource in resources
        }
    if left:
        raise CloudError(
            f"AWS still lists {', '.join(left)}",
            f"repeat {command_text('gpuctl down {} --verify', name)}",
        )
    if denied:
        raise CloudError(
            f"it is not verified that cluster '{name}' is gone: these credentials may not list"
            f" {', '.join(denied)}",
            "use credentials that may",
        )
    ended = find_instances(client(target, "ec2"), name, cluster_id)
    return Verification(
        region=target.region,
        tags={CLUSTER_TAG: name} | ({ID_TAG: cluster_id} if cluster_id else {}),
        kinds=tuple(KINDS),
        rounds=ROUNDS,
        instances={instance.id: instance.state for instance in ended},
    )
