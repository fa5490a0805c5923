"""The time between two attempts of a run: the decision, the pause, the wait for lost nodes."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import cast

from engine.agent.head.queue_wait import run_nodes
from engine.agent.head.recorder import Recorder
from engine.agent.head.run_state import Again, WaitForNodes, next_step, plan_on
from engine.agent.journal.journal import E
from engine.agent.link.launcher import Launcher
from engine.agent.link.times import Times
from engine.contract.event import Event
from engine.contract.head_events import AttemptEnded, AttemptStarted, NodesLeftOut, WaitingForNodes
from engine.contract.verdict import Verdict


async def wait_for_next_attempt(
    recorder: Recorder, launcher: Launcher, verdict: Verdict, times: Times
) -> Verdict | None:
    """Wait until the next attempt may start, record its start and return None; else the verdict.

    `verdict` is that of the attempt that has ended, the result that of the run. What an earlier
    supervisor has recorded about this time is not recorded again.
    """
    state = recorder.state
    policy = state.whole.retry
    step = next_step(state.number, verdict, state.attempt, policy, times.most_backoff_s)
    if step is None:
        return _with_number(verdict, state.number)
    pause_s = step.seconds if isinstance(step, Again) else 0
    over = _record_once(
        recorder,
        AttemptEnded(
            number=state.number,
            attempts=policy.attempts if policy else 1,
            exit_code=verdict.exit_code,
            first_failed_rank=verdict.first_failed_rank,
            reason=verdict.reason,
            pause_s=pause_s,
        ),
    )
    nodes = _Nodes(recorder, launcher)
    ended: Verdict | None = None
    if isinstance(step, WaitForNodes):
        ended = await nodes.wait_for(step, verdict, times.look_s)
    else:
        await nodes.wait(time_left(over, pause_s, recorder.journal.clock.now()))
        await nodes.look()  # at those that the run goes on without
    ended = state.attempt.ending or ended
    if ended is not None:
        return _with_number(ended, state.number)
    nodes.start_next()
    return None


class _Nodes:
    """The nodes of a run between two attempts; some of them are absent."""

    def __init__(self, recorder: Recorder, launcher: Launcher) -> None:
        self._recorder, self._launcher = recorder, launcher
        self._state = state = recorder.state
        own = {node.name for node in state.plan.nodes}
        self._absent = {node.name for node in state.whole.nodes} - own - state.healed
        self._replaced = state.replaced | state.reclaimed

    async def wait(self, seconds: float) -> None:
        """Wait for `seconds`, for an event that ends the run, or for nodes that were made again."""
        state = self._state
        await self._recorder.wait_until(
            lambda: state.attempt.ending or self._absent & state.healed, seconds
        )

    async def wait_for(self, step: WaitForNodes, verdict: Verdict, look_s: float) -> Verdict | None:
        """Wait until the nodes are back, or until the run goes on without them.

        Return the run's verdict if it must end instead.
        """
        lost = {self._state.plan.nodes[rank].name for rank in step.ranks}
        self._absent |= lost
        waiting = _record_once(self._recorder, WaitingForNodes(self._in_order(lost), step.seconds))
        loop = asyncio.get_running_loop()
        left = time_left(waiting, step.seconds, self._recorder.journal.clock.now())
        until = loop.time() + left
        while lost & self._absent:
            await self.wait(min(look_s, max(0.0, until - loop.time())))
            if self._state.attempt.ending:
                return None
            await self.look()
            if loop.time() >= until:
                break
        return self._judge_absent(lost & self._absent, step.seconds, verdict)

    def _judge_absent(self, lost: set[str], seconds: int, verdict: Verdict) -> Verdict | None:
        """Return the run's verdict if too few nodes are left; else record which are left out."""
        whole = self._state.whole
        left, names = len(whole.nodes) - len(self._absent), self._in_order(lost)
        if not lost:
            return None
        if whole.is_elastic and left >= (whole.least_nodes or 0):
            _record_once(self._recorder, NodesLeftOut(names, left))
            return None
        reason = f"{verdict.reason}; {', '.join(names)} did not come back within {seconds} s"
        if whole.is_elastic:
            reason += f": {left} of at least {whole.least_nodes} nodes are left"
        return replace(verdict, reason=reason)

    async def look(self) -> None:
        """Find out which absent nodes are back, as new machines or as the same ones."""
        self._absent -= self._state.healed
        away = self._absent - self._replaced
        nodes = [node for node in self._state.whole.nodes if node.name in away]
        answers = await asyncio.gather(*(self._launcher.is_back(node.private_ip) for node in nodes))
        self._absent.difference_update(node.name for node in itertools.compress(nodes, answers))

    def start_next(self) -> None:
        """Record the start of the next attempt on the nodes that are there."""
        whole = self._state.whole
        present = {node.name for node in whole.nodes} - self._absent
        nodes = run_nodes(plan_on(whole, present)) if whole.is_elastic else ()
        self._recorder.record(AttemptStarted(self._state.number + 1, nodes))

    def _in_order(self, names: set[str]) -> tuple[str, ...]:
        return tuple(node.name for node in self._state.whole.nodes if node.name in names)


def _record_once(recorder: Recorder, event: E) -> E:
    """Record the event about the next attempt, unless it is recorded; return what is recorded."""
    recorded: Event | None = recorder.state.between.get(type(event))
    return recorder.record(event) if recorded is None else cast(E, recorded)


def _with_number(verdict: Verdict, number: int) -> Verdict:
    """Return the verdict; the reason of a failure then names the attempt."""
    if verdict.status != "failed" or number == 1:
        return verdict
    return replace(verdict, reason=f"{verdict.reason} (attempt {number})")


def time_left(event: Event, seconds: float, now: float) -> float:
    """Return what is left of the seconds that began with the event."""
    return min(seconds, max(0.0, event.time + seconds - now))
