"""Resources that no cluster uses any more, and their removal."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from config.target import Target
from operations.chosen_target import ALL_REGIONS, ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision import gc
from provision.gc import Collected, Survey
from provision.removal.orphans import FoundCluster

__all__ = ["Collected", "FoundCluster", "Survey", "find", "remove"]


def find(
    chosen: ChosenTarget,
    *,
    owners: Collection[str] = (),
    watcher: Watcher = LoggingWatcher(),
) -> Survey:
    """Return every cluster of which something exists in the target's region, or in all regions.

    What belongs to one of `owners` counts as this caller's. Raises CloudError if no region answers.
    """
    chosen.require_lab()
    target = _target(chosen)
    is_everywhere = chosen.region == ALL_REGIONS
    regions = gc.enabled_regions(target) if is_everywhere else (target.region,)
    return gc.survey(target, regions, watcher.report, owners)


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
    """Return a target in the chosen region; for all regions in one that lists the enabled ones."""
    if chosen.region == ALL_REGIONS:
        return replace(chosen, region=None).target("us-east-1")
    return chosen.target()
