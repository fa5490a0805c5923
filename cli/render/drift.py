"""The differences between AWS and a cluster's state, as text."""

import json
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from operations.drift import Drift, ForeignTag

_MOST_PLACES = 3
"""The most resources that a line names one by one; of more, their kinds are counted."""

_SIGNS = {"update": "~", "delete": "-"}


def drift_lines(drift: "Drift") -> "Iterator[str]":
    """Yield a line for each difference, and what to do."""
    if drift.is_empty:
        yield f"No changes: cluster {drift.name} in AWS is as the last `gpuctl up` left it."
        yield from _foreign_tags(drift)
        return
    yield f"Changed outside of gpuctl since the last `gpuctl up` of {drift.name}:"
    for change in drift.changes:
        yield f"  {_SIGNS[change.op]} {change.type:<46} {change.name}"
        yield from (f"      {detail}" for detail in change.details)
    for resource in drift.unknown:
        yield f"  + {resource}: it has the cluster's tags, and is not in Pulumi's state"
    yield from (f"  - {problem}" for problem in drift.storage)
    gone = sum(change.op == "delete" for change in drift.changes)
    yield (
        f"Drift: {len(drift.changes) - gone} changed, {gone + len(drift.storage)} gone,"
        f" {len(drift.unknown)} added."
        " `gpuctl up FILE` undoes changes and losses; `gpuctl down` removes what was added."
    )
    if drift.storage:
        yield "gpuctl did not create the file system, and cannot bring it back."
    yield from _foreign_tags(drift)


def _foreign_tags(drift: "Drift") -> "Iterator[str]":
    """Yield a line for each key of others' tags: policies tag thousands of resources."""
    by_key: dict[str, list[ForeignTag]] = {}
    for tag in drift.foreign_tags:
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
