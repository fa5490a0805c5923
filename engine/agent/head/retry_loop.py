"""The time between two attempts of a run: the decision, the pause, the wait for lost nodes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.agent.head.queue_wait import run_nodes
from engine.agent.head.resizing import plan_on
from engine.agent.head.retry import (
    Again,
    Attempt,
    GiveUp,
    WaitForNodes,
    next_step,
    replace_addresses,
)
from engine.agent.head.states import State
from engine.agent.head.verdicts import judge_run
from engine.contract.events import (
    AttemptEnded,
    AttemptStarted,
    DurationOver,
    Event,
    HeadEnding,
    NodesHealed,
    NodesLeftOut,
    StopAsked,
    WaitingForNodes,
)
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict

if TYPE_CHECKING:
    from engine.agent.head.resuming import Recorded
    from engine.agent.journal.journal import Journal
    from engine.agent.link.launcher import Launcher

LOOK_S = 2.0  # between two looks whether a lost node is back
_ENDS_RUN = (StopAsked, DurationOver, HeadEnding)


class Attempts:
    """The attempts of a run, for its supervisor, which makes each of them.

    `recorded` is what an earlier supervisor has recorded, `plan` the plan that it had got. The
    attribute `plan` is that of the present attempt, which may have fewer nodes than the run.
    """

    def __init__(
        self, recorded: Recorded, plan: LaunchPlan, journal: Journal, launcher: Launcher
    ) -> None:
        self.plan, self.number = recorded.plan, recorded.number
        self._whole, self._healed = recorded.whole, set(recorded.healed)
        own = {node.name for node in recorded.plan.nodes}
        self._absent = {node.name for node in self._whole.nodes} - own
        self._replaced: set[str] = set()  # come back as new machines alone
        self._is_between = bool(recorded.between)
        self._between = dict(recorded.between)
        self._policy = plan.retry
        self._journal, self._launcher = journal, launcher
        if recorded.whole != plan or recorded.plan != plan:
            self._use_addresses()

    def heal(self, addresses: Mapping[str, str]) -> None:
        """Use these addresses of nodes that were made again from the next attempt on."""
        self._whole = replace_addresses(self._whole, addresses)
        present = set() if self._is_between else {node.name for node in self.plan.nodes}
        self._healed |= addresses.keys() - present
        self._use_addresses()

    def use_present_machines(self) -> bool:
        """Use the addresses that nodes got before the run began; return whether any is new."""
        is_new = self.plan != self._whole
        self.plan = self._whole
        self._use_addresses()
        return is_new

    async def wait_for_next(
        self,
        verdict: Verdict,
        lost: Collection[int],
        state: State,
        inbox: asyncio.Queue[Event],
    ) -> Verdict | None:
        """Wait until the next attempt may start, and return None; else the run's verdict.

        `lost` are the ranks that the last attempt has lost, `state` is its end. Whoever stops the
        run in between does it by an event of `inbox`.
        """
        reclaimed = frozenset(rank for rank, node in enumerate(state.nodes) if node.notice)
        step = next_step(Attempt(self.number, verdict, frozenset(lost), reclaimed), self._policy)
        if isinstance(step, GiveUp):
            return self._number(verdict)
        self._is_between = True
        pause_s = step.seconds if isinstance(step, Again) else 0
        over = self._record(
            AttemptEnded(
                number=self.number,
                attempts=self._policy.attempts if self._policy else 1,
                exit_code=verdict.exit_code,
                first_failed_rank=verdict.first_failed_rank,
                reason=verdict.reason,
                pause_s=pause_s,
            )
        )
        if isinstance(step, WaitForNodes):
            ended = await self._wait_for_nodes(step, verdict, state, inbox)
        else:
            ended = await self._wait(inbox, state, _left(over, pause_s, self._journal.clock.now()))
            await self._look()  # at nodes that the run goes on without
        ended = ended or self._hear_all(inbox, state)
        if ended is not None:
            return self._number(ended)
        self._start_next()
        return None

    def _start_next(self) -> None:
        """Use the nodes that are there, and record the start of the next attempt."""
        names = {node.name for node in self._whole.nodes} - self._absent
        self.plan = plan_on(self._whole, names)
        self._use_addresses()
        self._between.clear()
        self._healed.clear()
        self._is_between = False
        self._replaced -= names
        self.number += 1
        nodes = run_nodes(self.plan) if self._whole.is_elastic else ()
        self._journal.append(AttemptStarted(self.number, nodes))

    def _record(self, event: Event) -> Event:
        """Write the event to the journal, unless an earlier supervisor has; return it."""
        return self._between.get(type(event)) or self._journal.append(event)

    def _number(self, verdict: Verdict) -> Verdict:
        """Return the verdict; the reason of a failure then names the attempt."""
        if verdict.status != "failed" or self.number == 1:
            return verdict
        return replace(verdict, reason=f"{verdict.reason} (attempt {self.number})")

    async def _wait_for_nodes(
        self, step: WaitForNodes, verdict: Verdict, state: State, inbox: asyncio.Queue[Event]
    ) -> Verdict | None:
        """Wait until the nodes are back, or until the run goes on without them.

        Return the run's verdict if it must end instead.
        """
        lost = {state.nodes[rank].name for rank in step.ranks}
        self._absent |= lost
        self._replaced |= {state.nodes[rank].name for rank in step.replaced}
        waiting = self._record(WaitingForNodes(self._in_order(lost), step.seconds))
        loop = asyncio.get_running_loop()
        until = loop.time() + _left(waiting, step.seconds, self._journal.clock.now())
        while lost & self._absent:
            ended = await self._wait(inbox, state, min(LOOK_S, max(0.0, until - loop.time())))
            if ended is not None:
                return ended
            await self._look()
            if loop.time() >= until:
                break
        return self._judge_absent(lost & self._absent, step.seconds, verdict)

    def _judge_absent(self, lost: set[str], seconds: int, verdict: Verdict) -> Verdict | None:
        """Return the run's verdict if too few nodes are left; else record which are left out."""
        if not lost:
            return None
        left, names = len(self._whole.nodes) - len(self._absent), self._in_order(lost)
        if self._whole.is_elastic and left >= (self._whole.least_nodes or 0):
            self._record(NodesLeftOut(names, left))
            return None
        reason = f"{verdict.reason}; {', '.join(names)} did not come back within {seconds} s"
        if self._whole.is_elastic:
            reason += f": {left} of at least {self._whole.least_nodes} nodes are left"
        return replace(verdict, reason=reason)

    async def _look(self) -> None:
        """Find out which absent nodes are back, as new machines or as the same ones."""
        self._absent -= self._healed
        looked = [node for node in self._whole.nodes if node.name in self._absent - self._replaced]
        answers = await asyncio.gather(
            *(self._launcher.is_back(node.private_ip) for node in looked)
        )
        back = itertools.compress(looked, answers)
        self._absent.difference_update([node.name for node in back])

    def _in_order(self, names: set[str]) -> tuple[str, ...]:
        return tuple(node.name for node in self._whole.nodes if node.name in names)

    async def _wait(
        self, inbox: asyncio.Queue[Event], state: State, seconds: float
    ) -> Verdict | None:
        """Wait for `seconds`, for an event that ends the run, or for nodes that were made again.

        Return the verdict of the run, if it has ended.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            try:
                # Events that came already count, however short the time is.
                left = until - loop.time() if inbox.empty() else LOOK_S
                event = await asyncio.wait_for(inbox.get(), max(0.0, left))
            except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
                if inbox.empty():
                    return None
                continue
            verdict = _verdict(event, state)
            if verdict is not None:
                return verdict
            if isinstance(event, NodesHealed) and self._absent & event.addresses.keys():
                return None

    def _hear_all(self, inbox: asyncio.Queue[Event], state: State) -> Verdict | None:
        """Return the run's verdict, if an event that has come until now ends it."""
        verdict = None
        while verdict is None and not inbox.empty():
            verdict = _verdict(inbox.get_nowait(), state)
        return verdict

    def _use_addresses(self) -> None:
        """Launch workers at the addresses of the present plan; power all nodes off."""
        ips = tuple(node.private_ip for node in self.plan.nodes)
        self._launcher.replace_addresses(ips, tuple(self._whole.cluster_ips))


def _verdict(event: Event, state: State) -> Verdict | None:
    """Return the run's verdict if an event between two attempts ends it."""
    # Others are of the attempt that has ended.
    return judge_run(state, event) if isinstance(event, _ENDS_RUN) else None


def _left(event: Event, seconds: float, now: float) -> float:
    """Return what is left of the seconds that began with the event."""
    return min(seconds, max(0.0, event.time + seconds - now))
