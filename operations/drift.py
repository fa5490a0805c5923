"""What others have changed in AWS since the last `up` of a cluster."""

from config.command_text import command_text
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision import drift
from provision.drift import Drift, ForeignTag

__all__ = ["Drift", "ForeignTag"]


def find(chosen: ChosenTarget, cluster: str, *, watcher: Watcher = LoggingWatcher()) -> Drift:
    """Return how the cluster in AWS differs from the state that the last `up` left.

    Raises InputError if this machine has no record of the cluster, if a command is changing it, or
    if nothing of it is in the state.
    """
    instead = (
        f"{command_text('gpuctl health {}', cluster)} compares its machines with what they were"
    )
    return drift.drift(cluster, chosen.cluster_target(cluster, instead=instead), watcher.report)
