"""A case's cluster from its file to nothing, the way `plan`, `up` and `down` go, without machines.

`up` ends here where the machines' own part would begin (`provision.setup.bootstrap`).
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from config.loading.load import load_cluster
from config.progress import silent
from config.target import Target
from infra.fleet import Fleet
from infra.stack.installation import find_engine
from infra.stack.stack import Stack
from lab import session_manager_plugin
from provision.aws.resources import find
from provision.billing.cost import hourly_usd
from provision.down import down
from provision.nodes.launch import FleetLaunch
from provision.preflight.preflight import resolve
from provision.state.record import new_record
from provision.state.store import ClusterStore
from provision.up import FleetPlan
from tests.plans import requests
from tests.plans.account import prepared
from tests.plans.cases import Case
from tests.plans.nodes import Node, nodes_as_made, nodes_as_planned
from tests.plans.text import Planned, planned

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "us-west-2"
"""It has all of the types."""

AT_ONCE = 3
"""More clusters than this at once only wait for processors."""


@dataclass(frozen=True)
class Life:
    """`left` is what of the cluster is there at the end, in AWS and on this machine."""

    text: str
    planned: list[Node]
    made: list[Node]
    changes_after: tuple[str, ...]
    left: list[str]


PLUGIN = (sys.executable, session_manager_plugin.__file__, "no lab")


@contextmanager
def _planned(case: Case, target: Target, ec2: "EC2Client") -> Iterator[tuple[Planned, str, Stack]]:
    """The case's plan, the golden text of it, and the stack that can be made as planned."""
    with prepared(case.name, ec2) as ids:
        text = case.text
        for stand_in, real in ids.items():
            text = text.replace(stand_in, real)
        file = target.state / f"{case.golden.parent.name}-{case.name}.yaml"
        file.write_text(text)
        # Nobody connects, so this machine need not have the plugin.
        asked = replace(target, session_plugin=PLUGIN)
        resolved = resolve(load_cluster(file), ClusterStore(asked))
        stack = Stack(resolved.cluster.name, target, find_engine(silent))
        plan = stack.preview(resolved)
        found = planned(FleetPlan(resolved, plan, hourly_usd(resolved)), target)
        shown = found.text(case)
        for stand_in, real in ids.items():
            shown = shown.replace(real, stand_in)
        yield found, shown, stack


def live(case: Case, target: Target, ec2: "EC2Client") -> Life:
    """The cluster was planned, made and removed: nothing but what was planned may be made."""
    with _planned(case, target, ec2) as (found, text, stack):
        is_whole = case.is_mode or case.name in requests.TYPES
        with (_launched if is_whole else _made)(found, stack, target) as fleet:
            made = nodes_as_made(ec2, fleet, found)
            changes = stack.preview(found.fleet.resolved).changes if is_whole else ()
        left = find(ec2, stack.name)
        kept = _kept(stack.name, target.state) if is_whole else []
    return Life(
        text=text,
        planned=nodes_as_planned(found),
        made=made,
        changes_after=tuple(f"{c.op} {c.type} {c.name}" for c in changes if c.op != "same"),
        left=[f"{resource.kind} {resource.id}" for resource in left] + kept,
    )


def _kept(name: str, state: Path) -> list[str]:
    """What `down` leaves of the cluster in the state folder."""
    # Other clusters' files vanish meanwhile; unlike `rglob`, `os.walk` goes on without them.
    return [
        str(Path(folder, entry))
        for folder, folders, files in os.walk(state)
        for entry in (*folders, *files)
        if entry.split(".")[0] == name
    ]


@contextmanager
def _launched(found: Planned, stack: Stack, target: Target) -> Iterator[Fleet]:
    """All the way of `up`, its capacity claimed or waited for, and of `down`."""
    resolved = found.fleet.resolved
    record = new_record(resolved, datetime.now(UTC))
    ClusterStore(target).write(record)
    yield FleetLaunch(resolved, found.fleet.plan, stack, target, lambda _: None).carry_out(silent)
    ClusterStore(target).write(record.now("ready"))
    down(stack.name, target, silent)


@contextmanager
def _made(found: Planned, stack: Stack, target: Target) -> Iterator[Fleet]:
    """Only Pulumi's part: all types come from the same capacity by the same way."""
    yield stack.up(found.fleet.resolved)
    stack.destroy()
