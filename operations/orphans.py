"""Resources that no cluster uses any more, and their removal."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from config.target import Target
from operations.chosen_target import ALL_REGIONS, ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision import gc
from provision.gc import Collected
from provision.removal.orphans import FoundCluster

__all__ = ["Collected", "FoundCluster", "Survey", "find", "remove"]


@dataclass(frozen=True)
class Survey:
    """What exists in the regions that answered (`found`), and what its removal needs to know.

    What belongs to one of `owners` counts as this caller's.
    """

    found: gc.Survey
    target: Target
    owners: tuple[str, ...]

    def clusters(self, verdict: str) -> list[FoundCluster]:
        """Return the clusters with this verdict: orphaned, doubtful, recorded or foreign."""
        return [cluster for cluster in self.found.clusters if cluster.verdict == verdict]


def find(
    here: ChosenTarget,
    *,
    owners: Collection[str] = (),
    watcher: Watcher = LoggingWatcher(),
) -> Survey:
    """Return every cluster of which something exists in the target's region, or in all regions.

    Raises CloudError if no region answers.
    """
    here.require_lab()
    is_everywhere = here.region == ALL_REGIONS
    # Any region lists the enabled ones; boto3 needs one to ask.
    target = replace(here, region=None).target("us-east-1") if is_everywhere else here.target()
    regions = gc.enabled_regions(target) if is_everywhere else (target.region,)
    found = gc.survey(target, regions, watcher.report, owners)
    return Survey(found, target, tuple(owners))


def remove(
    survey: Survey,
    chosen: Sequence[FoundCluster],
    *,
    watcher: Watcher = LoggingWatcher(),
) -> tuple[Collected, ...]:
    """Remove what is left of the chosen clusters, and return the outcome of each.

    Each is judged again first. If its verdict or its reasons have changed, it stays.
    """
    if not chosen:
        return ()
    return gc.collect(chosen, survey.target, watcher.report, survey.owners)
