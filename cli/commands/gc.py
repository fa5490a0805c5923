"""`gpuctl gc`: resources that no cluster uses, their cost, and their removal."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import YesOption, chosen_target, output
from config.command_text import command_text
from config.errors import CloudError, InputError
from config.quantities import money, price
from operations import orphans

if TYPE_CHECKING:
    from cli.output import Output
    from operations.orphans import Collected, FoundCluster, Survey


def gc(
    context: typer.Context,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove what is orphaned, after a question.")
    ] = False,
    doubtful: Annotated[
        bool,
        typer.Option("--doubtful", help="Also remove what another machine of yours may still use."),
    ] = False,
    owner: Annotated[
        list[str] | None,
        typer.Option(metavar="ARN", help="Somebody else whose clusters count as yours here."),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Find resources that no cluster uses any more, and remove them.

    It searches the target's region, or all that the account has enabled. On a terminal it asks
    whether to remove what it found.

    $ gpuctl gc --region all
    $ gpuctl gc --region all --remove --yes
    """
    here, out = chosen_target(context), output(context)
    if not remove and (doubtful or yes):
        raise InputError("--doubtful and --yes are for --remove alone", "add --remove")
    with out.progress() as view:
        survey = orphans.find(here, owners=owner or (), watcher=view)
    lines = list(_lines(survey, out))
    if not out.as_json:
        out.show(None, lines)
    chosen = _choose(survey, out, remove=remove, doubtful=doubtful, yes=yes)
    with out.progress() as view:
        done = orphans.remove(survey, chosen, watcher=view)
    out.show(_document(survey, done), (line for each in done for line in _outcome(each)))
    for line in survey.found.denied:
        out.warn(f"these credentials may not list {line}: gpuctl assumes that there is none")
    problems = [
        f"{collected.name} ({collected.id}) in {collected.region}: {collected.problem}"
        for collected in done
        if collected.problem
    ]
    if failed := survey.found.failed:
        raise CloudError(
            f"{_number(len(failed), 'region')} did not answer: {'; '.join(failed)}",
            "nobody knows what exists there: repeat the command",
        )
    if problems:
        raise CloudError("; ".join(problems), "repeat `gpuctl gc`")


def _choose(
    survey: "Survey", out: "Output", *, remove: bool, doubtful: bool, yes: bool
) -> "list[FoundCluster]":
    """Return the clusters to remove: those that the person agrees to."""
    orphaned, in_doubt = survey.clusters("orphaned"), survey.clusters("doubtful")
    can_ask = _has_terminal() and not out.as_json and not yes
    if not remove and not can_ask:
        return []
    sure = orphaned + (in_doubt if doubtful else [])
    chosen = list(sure)
    if sure and remove:
        out.confirm(f"Remove {_count(sure)}?", yes)
    elif sure and not _agrees(f"Remove {_count(sure)}?", out):
        chosen = []
    if can_ask and not doubtful:
        chosen += [one for one in in_doubt if _agrees(_doubt_question(one), out)]
    return chosen


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _agrees(question: str, out: "Output") -> bool:
    return out.ask(f"{question} [y/N]: ").strip().lower() in {"y", "yes"}


def _doubt_question(cluster: "FoundCluster") -> str:
    return (
        f"Another machine of yours may use {cluster.name} in {cluster.region}"
        f" ({', '.join(cluster.reasons)}). Remove it too?"
    )


def _count(clusters: "Sequence[FoundCluster]") -> str:
    resources = sum(len(cluster.resources) for cluster in clusters)
    instances = sum(one.instances for one in clusters)
    machines = f", {instances} of them instances" if instances else ""
    return f"{_number(resources, 'resource')} of {_number(len(clusters), 'cluster')}{machines}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _outcome(done: "Collected") -> Iterator[str]:
    place = f"{done.name} ({done.id}) in {done.region}"
    yield f"{place}: {_number(len(done.removed), 'resource')} removed."


def _document(survey: "Survey", done: "Sequence[Collected]") -> dict[str, Any]:
    return {**asdict(survey.found), "removed": [asdict(collected) for collected in done]}


def _lines(survey: "Survey", out: "Output") -> Iterator[str]:
    """Yield what was found: what may be removed with its resources, the rest in a line each."""
    for verdict in ("orphaned", "doubtful"):
        for leftover in survey.clusters(verdict):
            yield from _leftover(leftover, out)
    for cluster in survey.found.clusters:
        if cluster.verdict in ("recorded", "foreign"):
            yield _in_use(cluster)
    yield _total(survey)


def _leftover(cluster: "FoundCluster", out: "Output") -> Iterator[str]:
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
    yield from out.table(("  KIND", "ID", "NAME", "PER HOUR", "SINCE"), rows, right=("PER HOUR",))


def _title(cluster: "FoundCluster") -> str:
    return f"{cluster.name} ({cluster.id or 'without id'}) in {cluster.region}"


def _in_use(cluster: "FoundCluster") -> str:
    if cluster.verdict == "recorded":
        return f"{_title(cluster)}: this machine's, {_cost(cluster)}; `gpuctl status` shows it"
    runs = f"{_number(cluster.instances, 'instance')}, " if cluster.instances else "no instance, "
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
    found = survey.found
    where = (
        f"in {found.regions[0]}" if len(found.regions) == 1 else f"in {len(found.regions)} regions"
    )
    where += f" of account {found.account}"
    left = [*survey.clusters("orphaned"), *survey.clusters("doubtful")]
    if not left:
        return f"Nothing is orphaned {where}."
    usd = sum(resource.hourly_usd for resource in left)
    return (
        f"{_count(left)} {where}, without a record on this machine:"
        f" {price(usd)} per hour, {money(24 * usd)} per day at list prices."
    )
