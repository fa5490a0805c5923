"""The plan of a preview, as Pulumi's engine stores it for the update that carries it out."""

import json
from collections.abc import Mapping
from pathlib import Path

_DONE = ("same",)

Operations = Mapping[str, tuple[str, ...]]
"""The operations on each resource, by its URN."""


def planned_operations(plan: Path) -> Operations:
    """Return the operations in Pulumi's plan file (Pulumi 3.258.0, `preview --save-plan`)."""
    stored = json.loads(plan.read_text())["resourcePlans"]
    return {urn: tuple(each.get("steps") or _DONE) for urn, each in stored.items()}


def is_within(now: Operations, approved: Operations) -> bool:
    """Return whether `now` has no operation that `approved` lacks; done ones may be missing."""
    return all(steps in (_DONE, approved.get(urn, _DONE)) for urn, steps in now.items())
