"""`gpuctl drift CLUSTER`: what others have changed in AWS since the last `up`."""

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from operations import drift as operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from operations.drift import Drift, ForeignTag

CHANGED = 2
"""The exit code if something differs, as `terraform plan -detailed-exitcode` has it: 0 without
changes, 1 after an error, 2 with changes
(https://developer.hashicorp.com/terraform/cli/commands/plan, 2026-11-23)."""

_MOST_PLACES = 3
"""The most resources that a line names one by one; of more, their kinds are counted."""

_SIGNS = {"update": "~", "delete": "-"}


def drift(context: typer.Context, cluster: ClusterArgument) -> None:
    """Show what others have changed in AWS since the last `up`.

    The exit code is 0 if nothing differs, 2 if something does, and 1 after an error.

    $ gpuctl drift demo
    $ gpuctl drift demo --json
    """
    here, out = chosen_target(context), output(context)
    with out.progress() as view:
        found = operation.find(here, cluster, watcher=view)
    out.show(asdict(found), _lines(found))
    if not found.is_empty:
        raise typer.Exit(CHANGED)


def _lines(found: "Drift") -> "Iterator[str]":
    if found.is_empty:
        yield f"No changes: cluster {found.name} in AWS is as the last `gpuctl up` left it."
        yield from _foreign_tags(found)
        return
    yield f"Changed outside of gpuctl since the last `gpuctl up` of {found.name}:"
    for change in found.changes:
        yield f"  {_SIGNS[change.op]} {change.type:<46} {change.name}"
        yield from (f"      {detail}" for detail in change.details)
    for resource in found.unknown:
        yield f"  + {resource}: it has the cluster's tags, and is not in Pulumi's state"
    gone = sum(change.op == "delete" for change in found.changes)
    yield (
        f"Drift: {len(found.changes) - gone} changed, {gone} gone, {len(found.unknown)} added."
        " `gpuctl up FILE` undoes changes and losses; `gpuctl down` removes what was added."
    )
    yield from _foreign_tags(found)


def _foreign_tags(found: "Drift") -> "Iterator[str]":
    """Yield a line for each key of others' tags: policies tag thousands of resources."""
    by_key: dict[str, list[ForeignTag]] = {}
    for tag in found.foreign_tags:
        by_key.setdefault(tag.key, []).append(tag)
    if by_key:
        yield "Tags that are not gpuctl's; `gpuctl up` and `gpuctl heal` leave them alone:"
    for key, tags in by_key.items():
        values = list(dict.fromkeys(tag.value for tag in tags))
        text = f"={json.dumps(values[0])}" if len(values) == 1 else f" ({len(values)} values)"
        places = [tag.resource for tag in tags]
        if len(places) > _MOST_PLACES:
            kinds = Counter(place.rpartition(" ")[0] for place in places)
            places = [f"{kind} ({number})" for kind, number in kinds.items()]
        yield f"  {key}{text}: {', '.join(places)}"
