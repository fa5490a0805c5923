"""`gpuctl gc`: resources that no cluster uses, their cost, and their removal."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import YesOption, chosen_target, output
from cli.render import orphans as render
from config.errors import CloudError, InputError
from config.quantities import counted
from operations import orphans

if TYPE_CHECKING:
    from cli.output import Output
    from operations.orphans import FoundCluster, Survey


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

    It searches all regions that the account has enabled, or the one of --region. On a terminal it
    asks whether to remove what it found.

    $ gpuctl gc
    $ gpuctl gc --region us-east-1 --remove --yes
    """
    chosen, out = chosen_target(context), output(context)
    if not remove and (doubtful or yes):
        raise InputError("--doubtful and --yes are for --remove alone", "add --remove")
    with out.progress() as view:
        survey = orphans.find(chosen, owners=owner or (), watcher=view)
    lines = list(render.orphan_lines(survey, out))
    if not out.as_json:
        out.show(None, lines)
    clusters = _choose(survey, out, remove=remove, doubtful=doubtful, yes=yes)
    with out.progress() as view:
        done = orphans.remove(chosen, clusters, owners=owner or (), watcher=view)
    out.show(
        {**asdict(survey), "removed": [asdict(each) for each in done]},
        (line for each in done for line in render.outcome_lines(each)),
    )
    for line in survey.denied:
        out.warn(f"these credentials may not list {line}: gpuctl assumes that there is none")
    problems = [
        f"{collected.name} ({collected.id}) in {collected.region}: {collected.problem}"
        for collected in done
        if collected.problem
    ]
    if failed := survey.failed:
        raise CloudError(
            f"{counted(len(failed), 'region')} did not answer: {'; '.join(failed)}",
            "nobody knows what exists there: repeat the command",
        )
    if problems:
        raise CloudError("; ".join(problems), "repeat `gpuctl gc`")


def _choose(
    survey: "Survey", out: "Output", *, remove: bool, doubtful: bool, yes: bool
) -> "list[FoundCluster]":
    """Return the clusters to remove: those that the person agrees to."""
    orphaned, in_doubt = survey.judged("orphaned"), survey.judged("doubtful")
    can_ask = _has_terminal() and not out.as_json and not yes
    if not remove and not can_ask:
        return []
    sure = orphaned + (in_doubt if doubtful else [])
    chosen = list(sure)
    if sure and remove:
        out.confirm(f"Remove {render.count_text(sure)}?", yes)
    elif sure and not _agrees(f"Remove {render.count_text(sure)}?", out):
        chosen = []
    if can_ask and not doubtful:
        chosen += [cluster for cluster in in_doubt if _agrees(_doubt_question(cluster), out)]
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
