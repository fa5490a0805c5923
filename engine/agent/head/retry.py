"""The decisions between the attempts of a run: pure functions, without clock, files or processes.

An attempt is one life of the state machine in states.py. Nothing of it runs any more when
`next_step` decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.agent.head.states import State
from engine.contract.codec import map_texts
from engine.contract.plan import LaunchPlan, RetryPlan
from engine.contract.verdict import Verdict


@dataclass(frozen=True)
class Again:
    """The next attempt starts in `seconds`."""

    seconds: int


@dataclass(frozen=True)
class WaitForNodes:
    """The next attempt starts when the nodes `ranks` are back, which may take `seconds`."""

    ranks: tuple[int, ...]
    seconds: int


def next_step(
    number: int,
    verdict: Verdict,
    attempt: State,
    policy: RetryPlan | None,
    most_backoff_s: int,
) -> Again | WaitForNodes | None:
    """Return what follows on the attempt; None if its verdict is that of the run.

    `number` counts attempts from 1 on; `policy` is None if the run is not retried. No pause
    is longer than `most_backoff_s`, unless the policy's first one is.
    """
    if policy is None or verdict.status != "failed" or not verdict.cause:
        return None
    # A rank that loses another one often fails before the supervisor knows that a node is lost, so
    # a lost node is another cause than that of the verdict.
    causes = {verdict.cause}
    causes |= {"node-lost"} if attempt.lost - attempt.reclaimed else set()
    causes |= {"preemption"} if attempt.reclaimed else set()
    if number >= policy.attempts or causes.isdisjoint(policy.on):
        return None
    missing = attempt.lost | attempt.reclaimed
    if missing:
        return WaitForNodes(tuple(sorted(missing)), policy.node_wait_s)
    longest = max(policy.backoff_s, most_backoff_s)
    return Again(min(policy.backoff_s << min(number - 1, 30), longest))


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
