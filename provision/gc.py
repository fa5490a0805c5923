"""The way of `gpuctl gc`: find what no cluster needs any more, and remove it.

It finds and removes with what `down` finds and removes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from config.errors import CloudError, InputError, Interrupted
from config.progress import Progress, Reporter
from config.target import Target
from provision.aws.account import caller, owner_tag
from provision.aws.clients import UNIVERSAL, aws_errors, client, request_pool
from provision.aws.resources import Kind, find_all
from provision.removal.orphans import FoundCluster, Known, Verdict, judge_all
from provision.removal.sweep import sweep
from provision.state.record import ClusterRecord
from provision.state.store import ClusterStore

REGIONS_AT_ONCE = 8
"""gpuctl sends a region up to 12 requests at a time. EC2's limits are per region, IAM's are not."""


@dataclass(frozen=True)
class Survey:
    """What exists in the regions that answered.

    `owner` is this caller's. `failed` has a line for each region that did not answer, `denied` one
    for each kind that the credentials may not list. What they hide is not in `clusters`.
    """

    account: str
    owner: str
    regions: tuple[str, ...]
    clusters: tuple[FoundCluster, ...]
    failed: tuple[str, ...]
    denied: tuple[str, ...]

    def judged(self, verdict: Verdict) -> list[FoundCluster]:
        """Return the clusters with this verdict."""
        return [cluster for cluster in self.clusters if cluster.verdict == verdict]


@dataclass(frozen=True)
class Collected:
    """The outcome for one cluster: what was removed, and why the rest was not, if so."""

    name: str
    id: str
    region: str
    removed: tuple[str, ...]
    problem: str = ""


def enabled_regions(target: Target) -> tuple[str, ...]:
    """Return the regions that the account has enabled, by name.

    Raises CloudError if EC2 does not list them. Without AllRegions it lists only those
    (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeRegions.html, 2026-11-23).
    """
    try:
        with aws_errors():
            regions = client(target, "ec2").describe_regions()["Regions"]
    except CloudError as error:
        raise error.with_added_hint("name a region with --region") from error
    return tuple(sorted(resource["RegionName"] for resource in regions))


def survey(
    target: Target, regions: Sequence[str], report: Reporter, owners: Collection[str] = ()
) -> Survey:
    """Return every cluster of which something exists in the regions, asked all at once.

    What belongs to one of `owners` counts as this caller's. Raises CloudError if no region answers.
    """
    who = caller(target)
    known = _known(target, frozenset({owner_tag(who, target), *owners}))
    clusters: list[FoundCluster] = []
    problems: dict[str, CloudError] = {}
    denied: list[str] = []
    if len(regions) > 1:
        report(Progress("search", f"{len(regions)} regions", "running"))
    with request_pool(REGIONS_AT_ONCE) as pool:
        answers = {region: pool.submit(_ask, target, region, known) for region in regions}
        for region, answer in answers.items():
            try:
                judged = answer.result()
            except CloudError as error:
                if error.code in UNIVERSAL - {"AuthFailure", "EndpointConnection"}:
                    raise
                problems[region] = error
            else:
                clusters += judged[0]
                denied += judged[1]
    if len(problems) == len(regions):
        raise next(iter(problems.values()))
    return Survey(
        account=who.account,
        owner=owner_tag(who, target),
        regions=tuple(region for region in regions if region not in problems),
        clusters=tuple(clusters),
        failed=tuple(f"{region}: {error.message}" for region, error in problems.items()),
        denied=tuple(sorted(denied)),
    )


def _known(target: Target, owners: frozenset[str]) -> Known:
    entries = ClusterStore(target).entries()
    damaged = (name for name, entry in entries.items() if isinstance(entry, InputError))
    records = (entry for entry in entries.values() if isinstance(entry, ClusterRecord))
    return Known(tuple(records), frozenset(damaged), owners)


def _ask(target: Target, region: str, known: Known) -> tuple[tuple[FoundCluster, ...], list[str]]:
    """Return the clusters of a region, and the kinds that the credentials may not list there."""
    denied: list[str] = []

    def note(kind: Kind) -> None:
        denied.append(f"{kind.unlisted} in {region}")

    resources = find_all(replace(target, region=region), None, on_denied=note)
    return judge_all(resources, region, known, datetime.now(UTC)), denied


def collect(
    chosen: Sequence[FoundCluster], target: Target, report: Reporter, owners: Collection[str] = ()
) -> tuple[Collected, ...]:
    """Remove the clusters, one after the other, and return the outcome of each.

    Each is judged again first: a person may have thought about the question for an hour. If its
    verdict or its reasons differ from those in `chosen`, it stays.
    """
    ours = frozenset({owner_tag(caller(target), target), *owners})
    return tuple(_collect(cluster, target, report, ours) for cluster in chosen)


def _collect(
    cluster: FoundCluster, target: Target, report: Reporter, owners: frozenset[str]
) -> Collected:
    """Remove one cluster; a refusal of AWS is its problem, and does not end the others' removal."""
    target = replace(target, region=cluster.region)
    removed: dict[str, None] = {}

    def note(progress: Progress) -> None:
        if progress.state == "done":
            removed[progress.subject] = None
        report(progress)

    problem = ""
    try:
        # Those of all clusters, because others may use what this one has.
        resources = find_all(target, None)
        clusters = judge_all(resources, target.region, _known(target, owners), datetime.now(UTC))
        now = next((c for c in clusters if (c.name, c.id) == (cluster.name, cluster.id)), None)
        if now and (now.verdict, now.reasons) != (cluster.verdict, cluster.reasons):
            problem = f"it has changed since it was listed, and is {now.verdict} now"
        elif now:
            sweep(target, cluster.name, cluster.id, note)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: parts of cluster '{cluster.name}' in {cluster.region} still exist",
            "repeat `gpuctl gc --remove`",
        ) from None
    except CloudError as error:
        problem = error.message
    return Collected(cluster.name, cluster.id, cluster.region, tuple(removed), problem)
