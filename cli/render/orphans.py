"""Resources that no cluster uses, as text."""

from typing import TYPE_CHECKING

from config.command_text import command_text
from config.quantities import counted, money, price

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.output import Output
    from operations.orphans import Collected, FoundCluster, Survey

DROP = ("NAME", "SINCE")
"""The columns that a narrow terminal lacks, the first of them first."""


def outcome_lines(done: "Collected") -> "Iterator[str]":
    """Yield the line about what was removed of a cluster."""
    place = f"{done.name} ({done.id}) in {done.region}"
    yield f"{place}: {counted(len(done.removed), 'resource')} removed."


def orphan_lines(survey: "Survey", out: "Output") -> "Iterator[str]":
    """Yield what was found: what may be removed with its resources, the rest in a line each."""
    for verdict in ("orphaned", "doubtful"):
        for leftover in survey.judged(verdict):
            yield from _leftover(leftover, out)
    for cluster in survey.clusters:
        if cluster.verdict in ("recorded", "foreign"):
            yield _in_use(cluster)
    if len(survey.regions) + len(survey.failed) > 1:
        yield from _regions(survey, out)
    yield _total(survey)


def _regions(survey: "Survey", out: "Output") -> "list[str]":
    """Return a line for each region: what exists there, and its price."""
    rows = []
    for region in survey.regions:
        clusters = [cluster for cluster in survey.clusters if cluster.region == region]
        usd = price(sum(cluster.hourly_usd for cluster in clusters)) if clusters else ""
        rows.append((region, count_text(clusters) if clusters else "nothing", usd))
    rows += [(line.partition(":")[0], "not known: no answer", "") for line in survey.failed]
    return out.table(("REGION", "FOUND", "PER HOUR"), sorted(rows), right=("PER HOUR",), drop=())


def _leftover(cluster: "FoundCluster", out: "Output") -> "Iterator[str]":
    doubt = f" ({', '.join(cluster.reasons)})" if cluster.reasons else ""
    yield f"{_title(cluster)}: {cluster.verdict}{doubt}, {_cost(cluster)}"
    rows = [
        (
            f"  {resource.kind}",
            resource.id,
            resource.name,
            price(resource.hourly_usd),
            _time(resource.since),
        )
        for resource in cluster.resources
    ]
    head = ("  KIND", "ID", "NAME", "PER HOUR", "SINCE")
    yield from out.table(head, rows, right=("PER HOUR",), drop=DROP)


def _title(cluster: "FoundCluster") -> str:
    return f"{cluster.name} ({cluster.id or 'without id'}) in {cluster.region}"


def _in_use(cluster: "FoundCluster") -> str:
    if cluster.verdict == "recorded":
        return f"{_title(cluster)}: this machine's, {_cost(cluster)}; `gpuctl status` shows it"
    runs = f"{counted(cluster.instances, 'instance')}, " if cluster.instances else "no instance, "
    if cluster.id:
        words = "gpuctl down {} --id {} --region {}"
        down = command_text(words, cluster.name, cluster.id, cluster.region)
    else:
        down = command_text("gpuctl down {} --region {}", cluster.name, cluster.region)
    whose = "owner unknown" if cluster.owner == "unknown" else f"it is {cluster.owner}'s"
    return (
        f"{_title(cluster)}: {whose}, {runs}{_cost(cluster)};"
        f" {command_text('gpuctl status --region {}', cluster.region)} shows it, {down} removes it"
    )


def _cost(cluster: "FoundCluster") -> str:
    since = f" since {_time(cluster.since)}" if cluster.since else ""
    unpriced = f", without {', '.join(cluster.unpriced)}" if cluster.unpriced else ""
    return f"{price(cluster.hourly_usd)} per hour{since}{unpriced}"


def _time(since: str | None) -> str:
    return "" if since is None else since[:16].replace("T", " ")


def _total(survey: "Survey") -> str:
    regions = survey.regions
    where = f"in {regions[0]}" if len(regions) == 1 else f"in {len(regions)} regions"
    where += f" of account {survey.account}"
    left = [*survey.judged("orphaned"), *survey.judged("doubtful")]
    if not left:
        return f"Nothing is orphaned {where}."
    usd = sum(resource.hourly_usd for resource in left)
    return (
        f"{count_text(left)} {where}, without a record on this machine:"
        f" {price(usd)} per hour, {money(24 * usd)} per day at list prices."
    )


def count_text(clusters: "Sequence[FoundCluster]") -> str:
    """Return the number of resources and clusters, and of instances among them."""
    resources = sum(len(cluster.resources) for cluster in clusters)
    instances = sum(cluster.instances for cluster in clusters)
    machines = f", {instances} of them instances" if instances else ""
    return f"{counted(resources, 'resource')} of {counted(len(clusters), 'cluster')}{machines}"
