"""The supervisor of one run, on the head node; it needs no client.

`supervise` is the way of a run: queue, attempts (prepare, start in order, watch, stop, decide),
save, end. attempt_runner.py has an attempt, run_state.py what follows from its events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from engine.agent.head.attempt_runner import RunningAttempt
from engine.agent.head.queue import Queue
from engine.agent.head.queue_wait import begin_fields, leave_queue, wait_in_queue
from engine.agent.head.recorder import Recorder
from engine.agent.head.retry_loop import wait_for_next_attempt
from engine.agent.head.run_state import RunState
from engine.agent.head.save_to_shared import save_run
from engine.agent.head.verdicts import STOP_REASON
from engine.agent.journal.clock import time_of_day
from engine.agent.journal.journal import Journal
from engine.agent.judge.output_reader import OutputReader
from engine.agent.link.launcher import Launcher
from engine.agent.link.times import TIMES, Times
from engine.agent.metrics.samples import Samples
from engine.agent.notify.lifetime import TIMER, lifetime_end, watch_end
from engine.agent.notify.notices import words
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    DurationOver,
    HeadEnding,
    LeaseEnding,
    NodesHealed,
    PoweringOff,
    RunFinished,
    RunStarted,
    StopAsked,
    SupervisorResumed,
)
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import NODE_FAILED, Verdict
from engine.contract.worker_events import NoticeGiven


class Supervisor:
    """The supervisor of a run. `secrets` maps names to values.

    `recorded` are the events that the journal has already, if an earlier supervisor was killed;
    `see` gets every event from now on.
    """

    timer: Path = TIMER
    """The timer of the cluster's lifetime."""

    def __init__(
        self,
        plan: LaunchPlan,
        secrets: dict[str, str],
        journal: Journal,
        launcher: Launcher,
        recorded: Iterable[Event] = (),
        see: Callable[[Event], None] = lambda _: None,
        times: Times = TIMES,
    ) -> None:
        self._secrets, self._journal, self._launcher = secrets, journal, launcher
        self._times = times
        self.state = state = RunState(plan)
        self._recorder = Recorder(state, journal, see)
        self._power_off = Deadline()
        self._has_nodes = False  # until then the run waits in the queue
        self._output = self._replay(recorded)
        self._resumed = 0 if state.began is None else state.number  # of an earlier supervisor
        if (state.whole, state.plan) != (plan, plan):
            self._use_addresses()

    def _replay(self, events: Iterable[Event]) -> OutputReader:
        """Read the journal of an earlier supervisor; add what it did not record.

        Return the reader of the last attempt's output.
        """
        state, output = self.state, OutputReader(self.state.plan)
        for event in events:
            state.add(event)
            if isinstance(event, AttemptStarted):
                output = OutputReader(state.plan)
            output.replay(event)
        self._journal.take_up(state.clock, state.write_error, state.missing)
        if not state.is_finished:
            for event in output.unrecorded:
                self._recorder.record(event)
        return output

    async def supervise(self, queue: Queue) -> None:
        """Supervise the run from the queue to its end, and give its nodes back to the queue."""
        state, plan = self.state, self.state.whole
        try:
            if await wait_in_queue(self._recorder, queue):
                await self.run()
            has_nodes = state.began is not None  # a run that left the queue has none
            if has_nodes and plan.on_stop == "destroy" and queue.close_cluster(plan.run_id):
                await self.power_off_unattended()
        finally:
            # Before followers see the end: the next run may begin at once. After an error in a run
            # that goes on, its nodes stay its own: the next supervisor takes it up.
            if state.is_finished:
                queue.leave(plan.run_id)

    @contextlib.contextmanager
    def _watch_ends(self) -> Iterator[None]:
        """Give notice of the end of the cluster's lifetime, and of its capacity block.

        AWS reports the end of a block's instances ten minutes before, to EventBridge alone
        (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html,
        2026-11-29).
        """
        record, notices = self._recorder.record, self.state.notices
        block_ends = self.state.whole.ends_at
        leases = [each.at for each in notices if isinstance(each, LeaseEnding)]
        blocks = _deadlines(notices, "capacity-block")

        def report_lease(at: float) -> None:
            record(LeaseEnding(at))

        def report_block(at: float) -> None:
            text = f"AWS ends the nodes at {time_of_day(at)}: their capacity block ends"
            record(NoticeGiven(None, "capacity-block", at, text))

        watches = [
            watch_end(lambda: lifetime_end(self.timer), report_lease, next(reversed(leases), None)),
            watch_end(lambda: block_ends, report_block, next(reversed(blocks), None)),
        ]
        tasks = [asyncio.ensure_future(watch) for watch in watches]
        try:
            yield
        finally:  # at once: followers see the run's end
            for task in tasks:
                task.cancel()

    async def run(self) -> Verdict:
        """Run to the end, with no process left on any node; return the verdict."""
        state, record, verdict = self.state, self._recorder.record, None
        samples = Samples(state.whole, self._journal.folder, record)
        with contextlib.closing(samples), self._limit_duration(), self._watch_ends():
            self._begin()
            while verdict is None:
                # The attempt prepares all nodes and starts their jobs in order.
                async with self._next_attempt(samples) as attempt:
                    await self._recorder.wait_until(lambda: state.attempt.verdict)
                    await attempt.stop()
                    ended = attempt.judge()
                verdict = await wait_for_next_attempt(
                    self._recorder, self._launcher, ended, self._times
                )
        verdict = self._check_journal(verdict)
        record(
            RunFinished(
                status=verdict.status,
                exit_code=verdict.exit_code,
                first_failed_rank=verdict.first_failed_rank,
                reason=verdict.reason,
                followed=self._output.followed,
            )
        )
        return verdict

    async def power_off_unattended(self) -> None:
        """Power the nodes off if `on_stop` is `destroy` and no client destroys them.

        Save first what the run leaves on them, if the plan says where.
        """
        plan = self.state.whole
        if plan.on_stop != "destroy":
            return
        self._power_off.postpone(self._times.acknowledge_s)
        await self._power_off.wait()
        if plan.saved:
            await asyncio.to_thread(self._journal.finish)
            folder, most_s = self._journal.folder, self._times.save_s
            await save_run(self.state.plan, folder, self._launcher, most_s)
            await self._power_off.wait()  # a client may have come meanwhile
        self._recorder.record(PoweringOff())
        await self._launcher.power_off()

    def stop(self, notice_s: float = 0) -> None:
        """Stop the run gracefully; it ends as `stopped`. A job that runs gets notice before."""
        state = self.state
        if not notice_s or not self._has_nodes or state.attempt.verdict or state.is_finished:
            self._stop(StopAsked(STOP_REASON), STOP_REASON)
            return
        at = round(time.time() + notice_s, 3)
        text = f"the run is stopped at {time_of_day(at)}, in {words(notice_s)}"
        self._recorder.record(NoticeGiven(None, "stop", at, text))
        self._stop_at(at)

    def _stop_at(self, at: float) -> None:
        """Stop the run at this time, unless it has ended."""

        def stop() -> None:
            if not self.state.is_finished:
                self._recorder.record(StopAsked(STOP_REASON))

        asyncio.get_running_loop().call_later(max(0.0, at - time.time()), stop)

    def end(self) -> None:
        """Stop the run because this unit got SIGTERM, as in a shutdown of the machine."""
        self._stop(HeadEnding(self.state.plan.head_rank), "the supervisor got SIGTERM")

    def _stop(self, event: Event, reason: str) -> None:
        if self._has_nodes and not self.state.is_finished:
            self._recorder.record(event)
        elif not self.state.is_finished:
            leave_queue(self._recorder, reason)

    def heal(self, addresses: str) -> None:
        """Use new machines from the next attempt on; `addresses` is JSON, by node names."""
        self._recorder.record(NodesHealed(json.loads(addresses)))
        self._use_addresses()

    def acknowledge(self) -> None:
        """Postpone the power-off by `lease_s`: a client destroys the cluster itself."""
        self._power_off.postpone(self._times.lease_s)

    def _begin(self) -> None:
        """Begin the run, or take it up."""
        self._has_nodes = True
        for at in _deadlines(self.state.notices, "stop"):
            self._stop_at(at)
        if self._resumed:
            self._recorder.record(SupervisorResumed())
            return
        plan = self.state.plan  # its nodes may be other machines since its wait in the queue
        started = RunStarted(
            **begin_fields(plan, self._journal),
            startup_order=plan.startup_order,
            stop_criteria=plan.stop_criteria,
            programs=plan.programs,
            sweep=plan.sweep,
        )
        self._recorder.record(started)

    def _next_attempt(self, samples: Samples) -> RunningAttempt:
        """Return the attempt that begins now, or that of an earlier supervisor."""
        state = self.state
        is_resumed = state.number == self._resumed
        if not is_resumed:
            self._output = OutputReader(state.plan)
            if state.number > 1:
                self._use_addresses()
        return RunningAttempt(
            self._recorder,
            self._output,
            samples,
            self._launcher,
            self._secrets,
            self._times,
            is_resumed=is_resumed,
        )

    @contextlib.contextmanager
    def _limit_duration(self) -> Iterator[None]:
        """End the run after the run file's `max_duration`, of which an earlier part may be over."""
        seconds, began = self.state.whole.max_duration_s, self.state.began
        if not seconds:
            yield
            return
        passed = 0.0 if began is None else self._journal.clock.now() - began
        timer = asyncio.get_running_loop().call_later(
            max(0.0, seconds - passed), self._recorder.record, DurationOver(seconds)
        )
        try:
            yield
        finally:  # it would be an event after the run's end
            timer.cancel()

    def _check_journal(self, verdict: Verdict) -> Verdict:
        """Return the verdict; a run with events that were not stored fails instead of `done`."""
        if not self._journal.dropped:
            return verdict
        name, why = self.state.whole.head, self._journal.write_error
        lost = f"{name}'s disk is full ({why}): {self._journal.dropped} events were not stored"
        if verdict.status == "done":
            return Verdict("failed", NODE_FAILED, self.state.plan.head_rank, lost)
        return replace(verdict, reason=f"{verdict.reason}; {lost}")

    def _use_addresses(self) -> None:
        """Launch workers at the addresses of the present plan; power all nodes off."""
        ips = tuple(node.private_ip for node in self.state.plan.nodes)
        self._launcher.replace_addresses(ips, tuple(self.state.whole.cluster_ips))


def _deadlines(notices: Iterable[Event], kind: str) -> list[float]:
    """Return the deadlines of the notices of a kind."""
    return [
        each.deadline
        for each in notices
        if isinstance(each, NoticeGiven) and each.notice == kind and each.deadline is not None
    ]


class Deadline:
    """A time that can be postponed while it is waited for."""

    def __init__(self) -> None:
        self._at = 0.0

    def postpone(self, seconds: float) -> None:
        """Postpone it to `seconds` from now, if it is earlier."""
        self._at = max(self._at, asyncio.get_running_loop().time() + seconds)

    async def wait(self) -> None:
        """Wait until it is over."""
        loop = asyncio.get_running_loop()
        while (left := self._at - loop.time()) > 0:  # noqa: ASYNC110  `postpone` moves it
            await asyncio.sleep(left)
