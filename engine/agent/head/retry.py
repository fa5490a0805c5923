"""The decisions between the attempts of a run: pure functions, without clock, files or processes.

An attempt is one life of the state machine in states.py. Nothing of it runs any more when
`next_step` decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.contract.codec import map_texts
from engine.contract.plan import LaunchPlan, RetryPlan
from engine.contract.verdict import Verdict

MOST_BACKOFF_S = 300
"""The longest pause between two attempts, unless the run file's `backoff` is longer."""


class Step:
    """A step after the end of an attempt."""


@dataclass(frozen=True)
class GiveUp(Step):
    """The verdict of the attempt is that of the run."""


@dataclass(frozen=True)
class Again(Step):
    """The next attempt starts in `seconds`."""

    seconds: int


@dataclass(frozen=True)
class WaitForNodes(Step):
    """The next attempt starts when the nodes `ranks` are back, which may take `seconds`.

    Those of them in `replaced` come back only as new machines.
    """

    ranks: tuple[int, ...]
    replaced: frozenset[int]
    seconds: int


@dataclass(frozen=True)
class Attempt:
    """An attempt that has ended: its number from 1 on, its verdict, and the nodes that it lost.

    `reclaimed` are the nodes of which AWS has announced that it reclaims them.
    """

    number: int
    verdict: Verdict
    lost: frozenset[int] = frozenset()
    reclaimed: frozenset[int] = frozenset()

    @property
    def causes(self) -> set[str]:
        """Return the causes of the failure.

        A rank that loses another one often fails before the supervisor knows that a node is lost,
        so a lost node is another cause than that of the verdict.
        """
        more = {"node-lost"} if self.lost - self.reclaimed else set()
        more |= {"preemption"} if self.reclaimed else set()
        return {self.verdict.cause} | more


def next_step(attempt: Attempt, policy: RetryPlan | None) -> Step:
    """Return what follows on the end of the attempt; `policy` is None if the run is not retried."""
    verdict = attempt.verdict
    if policy is None or verdict.status != "failed" or not verdict.cause:
        return GiveUp()
    if attempt.number >= policy.attempts or attempt.causes.isdisjoint(policy.on):
        return GiveUp()
    missing = attempt.lost | attempt.reclaimed
    if missing:
        return WaitForNodes(tuple(sorted(missing)), attempt.reclaimed, policy.node_wait_s)
    longest = max(policy.backoff_s, MOST_BACKOFF_S)
    return Again(min(policy.backoff_s << min(attempt.number - 1, 30), longest))


def replace_addresses(plan: LaunchPlan, addresses: Mapping[str, str]) -> LaunchPlan:
    """Return the plan with new private addresses of the nodes that `addresses` names.

    An address is replaced wherever the plan has it: hostfiles, environment, scripts.
    """
    known = {node.name: node.private_ip for node in plan.nodes}
    changed = {
        known[name]: address
        for name, address in addresses.items()
        if known.get(name, address) != address
    }
    if not changed:
        return plan
    either = "|".join(map(re.escape, changed))
    # Neither a part of a longer address (10.0.0.1 in 10.0.0.12) nor of a longer number with points.
    pattern = re.compile(rf"(?<![0-9.])(?:{either})(?![0-9]|\.[0-9])")

    return map_texts(plan, lambda text: pattern.sub(lambda address: changed[address[0]], text))
