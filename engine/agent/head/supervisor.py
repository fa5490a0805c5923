"""The supervisor of one run, on the head node; it needs no client.

It makes one attempt after the other (attempt_runner.py), waits in between (retry_loop.py), and
writes all events to the journal.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterable
from dataclasses import replace

from engine.agent.head.attempt_runner import Recorder, RunningAttempt
from engine.agent.head.queue_wait import begin_fields
from engine.agent.head.resuming import Recorded
from engine.agent.head.retry_loop import Attempts
from engine.agent.head.save_to_shared import save_run
from engine.agent.journal.clock import RunClock
from engine.agent.journal.journal import Journal
from engine.agent.judge.output_reader import OutputReader
from engine.agent.link.launcher import Launcher
from engine.agent.metrics.samples import Samples
from engine.contract.events import (
    AttemptStarted,
    DurationOver,
    Event,
    HeadEnding,
    NodesHealed,
    PoweringOff,
    RunFinished,
    RunStarted,
    StopAsked,
    SupervisorResumed,
)
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import NODE_FAILED, Verdict

ACKNOWLEDGE_S = 60  # time for a client to announce that it destroys the cluster
LEASE_S = 180  # time for that client's next announcement


class Supervisor:
    """The supervisor of a run. `secrets` maps names to values.

    `recorded` are the events that the journal has already, if an earlier supervisor was killed.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        secrets: dict[str, str],
        journal: Journal,
        launcher: Launcher,
        recorded: Iterable[Event] = (),
    ) -> None:
        self._plan, self._secrets = plan, secrets
        self._journal, self._launcher = journal, launcher
        self._recorder = Recorder(journal)
        self._recorder.samples = Samples(plan, journal.folder, self._recorder.record)
        self._power_off_at = 0.0
        self._has_ended = False
        self._recorded = before = Recorded(plan)
        output = self._replay(before, recorded)
        self._attempts = Attempts(before, plan, journal, launcher)
        self._attempt = self._next_attempt(before, output)
        for event in before.pending:
            self._recorder.inbox.put_nowait(event)

    def _replay(self, before: Recorded, events: Iterable[Event]) -> OutputReader:
        """Read the journal of an earlier supervisor; add what it did not record.

        Return the reader of the last attempt's output.
        """
        output = OutputReader(before.plan)
        for event in events:
            before.add(event)
            if isinstance(event, AttemptStarted):
                output = OutputReader(before.plan)
            output.replay(event)
        if before.clock is not None:
            self._journal.clock = RunClock(before.clock)
        if before.is_finished:
            return output
        if before.write_error:
            self._journal.write_error = before.write_error
            self._journal.dropped = max(1, before.missing)
        for event in output.unrecorded:
            self._recorder.record(event)
        return output

    def _next_attempt(self, recorded: Recorded, output: OutputReader) -> RunningAttempt:
        """Return the attempt; `recorded` is what the journal has of it."""
        launch = (self._recorder, self._launcher, self._secrets)
        return RunningAttempt(recorded, output, *launch, restarts=self._attempts.number - 1)

    def stop(self, reason: str = "stopped on request") -> None:
        """Stop the run gracefully; it ends as `stopped`."""
        self._recorder.record(StopAsked(reason))

    def end(self) -> None:
        """Stop the run because this unit got SIGTERM, as in a shutdown of the machine."""
        self._recorder.record(HeadEnding(self._attempt.plan.head_rank))

    def heal(self, addresses: str) -> None:
        """Use new machines from the next attempt on; `addresses` is JSON, by node names."""
        self._attempts.heal(json.loads(addresses))
        self._recorder.record(NodesHealed(json.loads(addresses)))

    def acknowledge(self) -> None:
        """Postpone the power-off to LEASE_S from now: a client destroys the cluster itself."""
        self._power_off_at = asyncio.get_running_loop().time() + LEASE_S

    @property
    def is_finished(self) -> bool:
        """Return whether the run's end is recorded, by this supervisor or an earlier one."""
        return self._recorded.is_finished or self._has_ended

    @property
    def has_left_queue(self) -> bool:
        """Return whether the run ended while it waited for its nodes."""
        return self._recorded.is_finished and self._recorded.began is None

    async def run(self) -> Verdict:
        """Run to the end, with no process left on any node; return the verdict."""
        began = self._recorded.began
        if began is None:
            self._begin()
        else:
            self._recorder.record(SupervisorResumed())
        limit = self._limit_duration(began)
        try:
            ended = await self._make_attempts()
        finally:
            if limit is not None:  # it would be an event after the run's end
                limit.cancel()
        self._recorder.samples.close()
        verdict = self._check_journal(ended)
        self._journal.append(
            RunFinished(
                status=verdict.status,
                exit_code=verdict.exit_code,
                first_failed_rank=verdict.first_failed_rank,
                reason=verdict.reason,
                followed=self._attempt.output.followed,
            )
        )
        self._has_ended = True
        return verdict

    def _limit_duration(self, began: float | None) -> asyncio.TimerHandle | None:
        """Start the run file's `max_duration`, of a run that began at that time or begins now."""
        seconds = self._plan.max_duration_s
        if not seconds:
            return None
        passed = 0.0 if began is None else self._journal.clock.now() - began
        over = functools.partial(self._recorder.record, DurationOver(seconds))
        return asyncio.get_running_loop().call_later(max(0.0, seconds - passed), over)

    async def _make_attempts(self) -> Verdict:
        """Make one attempt after the other; return the run's verdict."""
        ended: Verdict | None = None
        while ended is None:
            verdict = await self._attempt.execute()
            of = (self._attempt.lost_ranks, self._attempt.state, self._recorder.inbox)
            ended = await self._attempts.wait_for_next(verdict, *of)
            if ended is None:
                plan = self._attempts.plan
                self._attempt = self._next_attempt(Recorded(plan), OutputReader(plan))
        return ended

    def _begin(self) -> None:
        """Begin the run, on the machines that its nodes are after its wait in the queue."""
        if self._attempts.use_present_machines():
            plan = self._attempts.plan
            self._attempt = self._next_attempt(Recorded(plan), OutputReader(plan))
        plan = self._attempts.plan
        started = RunStarted(
            **begin_fields(plan, self._journal),
            startup_order=plan.startup_order,
            stop_criteria=plan.stop_criteria,
            programs=plan.programs,
            sweep=plan.sweep,
        )
        self._recorder.record(started)

    def _check_journal(self, verdict: Verdict) -> Verdict:
        """Return the verdict; a run with events that were not stored fails instead of `done`."""
        if not self._journal.dropped:
            return verdict
        name, why = self._plan.head, self._journal.write_error
        lost = f"{name}'s disk is full ({why}): {self._journal.dropped} events were not stored"
        if verdict.status == "done":
            return Verdict("failed", NODE_FAILED, self._attempt.plan.head_rank, lost)
        return replace(verdict, reason=f"{verdict.reason}; {lost}")

    async def power_off_unattended(self) -> None:
        """Power the nodes off if `on_stop` is `destroy` and no client destroys them.

        Save first what the run leaves on them, if the plan says where.
        """
        if self._plan.on_stop != "destroy":
            return
        loop = asyncio.get_running_loop()
        self._power_off_at = max(self._power_off_at, loop.time() + ACKNOWLEDGE_S)
        await self._wait_for_clients()
        if self._plan.saved:
            await asyncio.to_thread(self._journal.finish)
            await save_run(self._attempts.plan, self._journal.folder, self._launcher)
            await self._wait_for_clients()  # one may have come meanwhile
        self._journal.append(PoweringOff())
        await self._launcher.power_off()

    async def _wait_for_clients(self) -> None:
        """Wait as long as a client may destroy the cluster, or says that it does."""
        loop = asyncio.get_running_loop()
        while (left := self._power_off_at - loop.time()) > 0:  # noqa: ASYNC110  `acknowledge` moves it
            await asyncio.sleep(left)
