"""A client that follows a run: it reads the journal on the head, to the end of the run.

It reads on from where the local copy of the journal ends, and connects again if a connection
breaks.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from config.command_text import command_text
from config.errors import NodeError, RunError
from engine.contract.event import Event
from engine.contract.head_events import (
    Evidence,
    HeadUnreachable,
    NotificationsEnded,
    Notified,
    RunStarted,
    SupervisorLost,
)
from engine.contract.table import MOST_ROWS
from engine.contract.worker_events import NodeInterrupted
from engine.record.events import FirstEvent, parse_event
from engine.record.history import History
from engine.record.journal_copy import (
    EVENTS,
    EVIDENCE,
    Bound,
    EventBudget,
    JournalCopy,
    evidence_folder,
    recorded_events,
    write_evidence,
)
from engine.record.kept_results import KeptResults
from engine.record.result import ResultCollector, RunResult
from engine.record.run_errors import RunLost
from engine.session.head import CALL_S, Head

OnEvent = Callable[[Event], None]

INTERRUPTED_HEAD_S = 60
"""Seconds to retry a head after the time at which AWS announced to reclaim its spot instance."""


@dataclass(frozen=True)
class Limits:
    """The limits of a client that follows a run: what it takes at most, how long it waits.

    A head that does not answer is retried for `reconnect_s` seconds, while the run goes on there;
    the caller hears of it after `silent_s`. The others are the most of the run's events, of its
    files of evidence, and of the rows of its tables.
    """

    reconnect_s: float = 300
    silent_s: float = 10.0
    events: Bound = EVENTS
    evidence: Bound = EVIDENCE
    rows: int = MOST_ROWS


LIMITS = Limits()


class Following:
    """One client that follows one run. `on_event` gets every event, recorded ones first.

    Where this user may not write, nothing is kept.
    """

    def __init__(
        self, head: Head, run_id: str, runs: Path, on_event: OnEvent, limits: Limits = LIMITS
    ) -> None:
        self._head, self._run_id, self._runs = head, run_id, runs
        self._on_event, self._limits = on_event, limits
        self._head_rank: int | None = None  # stays None if the run does not use the head
        self._collector = ResultCollector()
        self._results = KeptResults(run_id, limits.rows)
        self._budget = EventBudget(limits.events, limits.evidence)
        self._head_notice: NodeInterrupted | None = None
        self._on_stop = "keep"
        self._notifies = False
        self._is_kept = True

    async def follow(self) -> RunResult:
        """Follow the run to its end, and store its tables, findings and result in the history."""
        with (
            History(self._runs) as history,
            contextlib.closing(JournalCopy(self._runs, self._run_id)) as record,
        ):
            self._is_kept = record.is_kept
            for event in recorded_events(self._runs, self._run_id, self._budget):
                self._see(event, history)
            result = self._collector.result() or await self._follow_head(record, history)
            history.finish(result)
            return result

    async def _follow_head(self, record: JournalCopy, history: History) -> RunResult:
        """Follow the head's journal to the run's end; reconnect after lost connections."""
        heard, pause = time.monotonic(), 1.0
        while True:
            before = record.offset
            try:
                return await self._read_journal(record, history)
            except NodeError as error:
                if record.offset != before:
                    heard, pause = time.monotonic(), 1.0
                self._check_head_interruption(history)
                self._report_silence(history, time.monotonic() - heard, error)
                if time.monotonic() - heard > self._limits.reconnect_s:
                    raise NodeError(
                        f"the head does not answer: {error.message}",
                        "if it works, the run goes on: try"
                        f" {command_text('gpuctl attach {}', self._run_id)} again",
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 15.0)

    def _report_silence(self, history: History, seconds: float, error: NodeError) -> None:
        """Report a head that is silent for `silent_s`; the caller may know that it is gone."""
        if seconds < self._limits.silent_s:
            return
        reason = error.message
        try:
            self._on_event(HeadUnreachable(time=time.time(), seconds=seconds, reason=reason))
        except RunLost as lost:
            history.mark_lost(self._run_id, lost.reason)
            raise

    def _check_head_interruption(self, history: History) -> None:
        """Raise RunLost if AWS has announced to reclaim the head and the announced time is over."""
        notice = self._head_notice
        if notice is None:
            return
        try:
            end = datetime.fromisoformat(notice.at).timestamp()
        except ValueError:  # an unknown format of time: retry as for any other head
            return
        if time.time() > end + INTERRUPTED_HEAD_S:
            raise self._record_interruption(history, notice)

    def _record_interruption(self, history: History, notice: NodeInterrupted) -> RunLost:
        taken = f"AWS took its spot instance back ({notice.action} at {notice.at})"
        return self._record_loss(
            history, f"{self._head.node.name} was lost: {taken}", "`gpuctl up` replaces it"
        )

    def _record_loss(self, history: History, reason: str, hint: str) -> RunLost:
        """Mark the run as lost in the history, and return the error for the caller to raise."""
        history.mark_lost(self._run_id, reason)
        return RunLost.of(self._run_id, reason, hint)

    async def _read_journal(self, record: JournalCopy, history: History) -> RunResult:
        """Read the journal; return the run's result. NodeError if the connection breaks first."""
        lost = ""
        async with self._head.journal(record.offset) as lines:
            async for line in lines:
                try:
                    event = parse_event(line)
                except ValueError:  # a part of a line, from a connection that broke
                    continue
                if isinstance(event, SupervisorLost):
                    lost = event.reason
                    break
                self._check_run(event)
                self._keep(line, event, record, history)
                result = self._collector.result()
                if result is not None:
                    await self._await_end(lines, record, history)
                    return self._collector.result() or result
        if self._head_notice is not None:
            raise self._record_interruption(history, self._head_notice)
        if lost:
            raise self._record_loss(history, lost, "no process of the run is left on the head")
        raise self._record_loss(
            history,
            f"the supervisor on {self._head.node.name} ended without a result",
            "the nodes end the job within two minutes; read"
            f" {command_text('journalctl -u gpuctl-run-{}', self._run_id)}"
            f" on {self._head.node.name}",
        )

    def _check_run(self, event: Event | None) -> None:
        """Raise RunError if the head sends the beginning of another run or cluster."""
        cluster = self._head.inventory.cluster
        if isinstance(event, FirstEvent) and (
            event.run_id != self._run_id or event.cluster != cluster
        ):
            raise RunError(
                f"{self._head.node.name} of cluster {cluster} sent the journal of run"
                f" {event.run_id} of cluster {event.cluster} for {self._run_id}",
                "its answers cannot be trusted: a job is root on the nodes;"
                f" {command_text('gpuctl down {}', cluster)} removes the cluster",
            )

    async def _await_end(
        self, lines: AsyncIterator[str], record: JournalCopy, history: History
    ) -> None:
        """Wait until the supervisor has ended, so that the cluster is free for the next run.

        If the supervisor still waits for a client that destroys the cluster, wait only until it has
        sent the run's notifications.
        """
        if self._on_stop == "destroy" and not self._notifies:
            return
        with contextlib.suppress(TimeoutError, NodeError, ValueError):  # the run itself is over
            async with asyncio.timeout(CALL_S):
                async for line in lines:
                    event = parse_event(line)
                    if isinstance(event, (Notified, NotificationsEnded)):
                        self._keep(line, event, record, history)
                    if isinstance(event, NotificationsEnded) and self._on_stop == "destroy":
                        return

    def _keep(self, line: str, event: Event | None, record: JournalCopy, history: History) -> None:
        """Store the line and show its event; over the budget, leave it out with one warning."""
        if self._budget.admits(line, event):
            record.append(line)
        else:
            record.leave_out(line, self._budget.time)
            event = self._budget.warning()
        if event is not None:
            self._see(event, history)

    def _see(self, event: Event, history: History) -> None:
        self._collector.see(event)
        if isinstance(event, FirstEvent):
            self._notifies = event.notifies
        if isinstance(event, RunStarted):
            history.mark_started(self._run_id)
            self._on_stop = event.on_stop
            self._head_rank = {n.name: n.rank for n in event.nodes}.get(self._head.node.name)
        if isinstance(event, NodeInterrupted) and event.rank == self._head_rank:
            self._head_notice = event
        if isinstance(event, Evidence) and self._is_kept:
            folder = evidence_folder(self._runs, self._run_id)
            write_evidence(folder, event.node, event.source, event.text)
        self._results.see(event, history)
        self._on_event(event)
