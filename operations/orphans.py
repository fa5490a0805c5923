"""Resources that no cluster uses any more, and their removal."""

from collections.abc import Collection, Sequence

from config.errors import CloudError, InputError
from config.folded_names import fold
from config.target import Target
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision import gc
from provision.gc import Collected, Survey
from provision.removal.orphans import FoundCluster

__all__ = ["Collected", "FoundCluster", "Survey"]


def find(
    chosen: ChosenTarget,
    *,
    owners: Collection[str] = (),
    watcher: Watcher = LoggingWatcher(),
) -> Survey:
    """Return every cluster of which something exists in the searched regions.

    They are the region of the option, else those of the setting `gc_regions`, else all that the
    account has enabled. What belongs to one of `owners` counts as this caller's. Raises CloudError
    if no region answers, or if EC2 does not list the enabled ones; InputError for a person without
    AWS who has clusters of hosts.
    """
    chosen.require_lab()
    target = _target(chosen)
    regions = (chosen.region,) if chosen.region else chosen.gc_regions
    try:
        return gc.survey(target, regions or gc.enabled_regions(target), watcher.report, owners)
    except CloudError as error:
        own = chosen.hosts_store().hosts_names()
        if error.code != "NoCredentials" or not own:
            raise
        raise InputError(
            f"gc searches AWS, for which there are no credentials; {fold(own)}: machines that you"
            " have",
            "`gpuctl down CLUSTER` removes what gpuctl wrote on those",
        ) from error


def remove(
    chosen: ChosenTarget,
    clusters: Sequence[FoundCluster],
    *,
    owners: Collection[str] = (),
    watcher: Watcher = LoggingWatcher(),
) -> tuple[Collected, ...]:
    """Remove what is left of the clusters, and return the outcome of each.

    Each is judged again first, with the same `owners`. If its verdict or its reasons have changed,
    it stays.
    """
    return gc.collect(clusters, _target(chosen), watcher.report, owners) if clusters else ()


def _target(chosen: ChosenTarget) -> Target:
    """Return a target in a region that lists the enabled ones."""
    return chosen.target(chosen.default_region or "us-east-1")
