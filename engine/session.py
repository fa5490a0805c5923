"""The client's side of a run: send the agent, start the supervisor, follow its journal.

Once the supervisor runs, the run no longer needs the client. The next client that follows the run
reads on from where the local copy of the journal ends.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from config.errors import GpuctlError, Interrupted, NodeError, RunError
from engine.events import (
    Event,
    Evidence,
    FirstEvent,
    HeadUnreachable,
    NodeInterrupted,
    RunStarted,
    SupervisorLost,
    parse_event,
)
from engine.head import CALL_S, ClusterBusy, Head
from engine.history import History
from engine.journal_copy import JournalCopy, evidence_folder, recorded_events, write_evidence
from engine.kept_results import KeptResults
from engine.known_run import Detached, KnownRun, RunGoesOn, RunLost
from engine.launch_plan import LaunchPlan
from engine.notification_events import NotificationsEnded, Notified
from engine.result import ResultCollector, RunResult
from engine.setting import setting
from nodes.inventory import Inventory

OnEvent = Callable[[Event], None]
Answer = Literal["stop", "detach", "abort"]
"""What Ctrl-C means for a run that this client follows. `stop` stops the run and waits for its
result; `detach` leaves the run alone; `abort` stops the run and does not wait."""
OnInterrupt = Callable[[], Answer]

RECONNECT_S = 300
"""Seconds to retry a head that does not answer; the run goes on there meanwhile."""
SILENT_S = 10.0
"""Seconds without an answer of the head after which the caller hears of it."""
STOP_S = 60
"""Seconds to wait for a run to stop: its supervisor gives its nodes up after 30 s."""
INTERRUPTED_HEAD_S = 60
"""Seconds to retry a head after the time at which AWS announced to reclaim its spot instance."""


async def run(
    plan: LaunchPlan,
    inventory: Inventory,
    runs: Path,
    on_event: OnEvent,
    secrets: Mapping[str, str] = MappingProxyType({}),
    on_interrupt: OnInterrupt = lambda: "stop",
) -> RunResult:
    """Run the plan to its end and return its result; record it in the folder `runs`.

    On return no process of the run is left on any node. `secrets` maps the names in the plan to
    their values (engine/secrets.py). Cancellation (Ctrl-C) does what `on_interrupt` returns. If the
    plan has `on_stop: destroy`, the caller has to destroy the cluster, within `prevent_power_off`.
    Raises NodeError or RunError when gpuctl fails. Three kinds of RunError, ClusterBusy, RunGoesOn
    and Detached, mean that the cluster must not be destroyed. Raises Interrupted when a run did not
    stop in time, and after `abort`.
    """
    session = _Session(Head(inventory, plan.run_id), plan.run_id, runs, on_event)

    async def life() -> RunResult:
        await session.start(plan, secrets)
        return await session.follow()

    return await session.accompany(plan, life(), on_interrupt)


async def start(
    plan: LaunchPlan,
    inventory: Inventory,
    runs: Path,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Start the run and leave it alone; return once its supervisor has it.

    Cancellation aborts the run. The errors are those of `run`.
    """
    session = _Session(Head(inventory, plan.run_id), plan.run_id, runs, lambda _: None)
    starting = asyncio.ensure_future(session.start(plan, secrets))
    try:
        with session.errors_of(plan):
            await asyncio.shield(starting)
    except asyncio.CancelledError:
        _clear_cancellation()
        try:
            await asyncio.wait_for(starting, STOP_S)  # it cannot be revoked
            await session.head.send("stop")
        except TimeoutError as error:
            raise Interrupted(*session.stop_failure()) from error
        raise session.aborted() from None


async def attach(
    known: KnownRun, inventory: Inventory, runs: Path, on_event: OnEvent, on_interrupt: OnInterrupt
) -> RunResult:
    """Follow a run that a client started to its end, as `run` does after the start.

    `on_event` gets every event from the run's beginning, recorded ones first.
    """
    head = Head(inventory, known.run_id, start_requested=True)
    session = _Session(head, known.run_id, runs, on_event)
    return await session.accompany(known, session.follow(), on_interrupt)


async def follow(run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent) -> RunResult:
    """Follow the run to its end and return its result.

    `on_event` gets every event from the run's beginning, recorded ones first. Cancellation does
    not stop the run.
    """
    return await _Session(Head(inventory, run_id), run_id, runs, on_event).follow()


async def first_event(run_id: str, inventory: Inventory, runs: Path) -> FirstEvent:
    """Return the first event of the run; wait for it if the run has just been started.

    Raises RunLost if the head has no such run.
    """
    begun: asyncio.Future[FirstEvent] = asyncio.get_running_loop().create_future()

    def see(event: Event) -> None:
        if isinstance(event, FirstEvent) and not begun.done():
            begun.set_result(event)

    following = asyncio.ensure_future(follow(run_id, inventory, runs, see))
    either: list[asyncio.Future[Any]] = [begun, following]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not begun.done():
        following.result()  # raises the reason
    await _end(following)
    return await begun


async def stop(
    run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent = lambda _: None
) -> RunResult:
    """Stop the run, if it has not ended, and return its result.

    On return no process of the run is left on any node. If the run has `on_stop: destroy`, its
    nodes power off a minute later, unless the caller destroys the cluster within
    `prevent_power_off`.
    """
    session = _Session(Head(inventory, run_id), run_id, runs, on_event)
    await session.head.send("stop")
    try:
        async with asyncio.timeout(STOP_S):
            return await session.follow()
    except TimeoutError as error:
        raise RunError(*session.stop_failure()) from error


class _Session:
    """One client's connection to one run."""

    def __init__(self, head: Head, run_id: str, runs: Path, on_event: OnEvent) -> None:
        self.head = head
        self._run_id, self._runs = run_id, runs
        self._on_event = on_event
        self._head_rank: int | None = None  # stays None if the run does not use the head
        self._collector = ResultCollector()
        self._results = KeptResults(run_id)
        self._head_notice: NodeInterrupted | None = None
        self._on_stop = "keep"
        self._notifies = False
        self._started = asyncio.Event()
        if head.start_requested:  # by another client
            self._started.set()

    async def start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        """Start the supervisor on the head with plan and secrets; add the run to the history."""
        with History(self._runs) as history:
            there = self.head.inventory
            history.begin(plan, setting(plan, there), self.head.node.instance_id)
            try:
                await self.head.start(plan, secrets)
            except GpuctlError:
                history.drop(plan.run_id)
                raise
        self._started.set()

    async def follow(self) -> RunResult:
        """Follow the run to its end, and store its tables, findings and result in the history."""
        with (
            History(self._runs) as history,
            contextlib.closing(JournalCopy(self._runs, self._run_id)) as record,
        ):
            for event in recorded_events(self._runs, self._run_id):
                self._see(event, history)
            result = self._collector.result() or await self._follow_head(record, history)
            history.finish(result)
            return result

    async def accompany(
        self, known: KnownRun, life: Coroutine[Any, Any, RunResult], on_interrupt: OnInterrupt
    ) -> RunResult:
        """Return the result of `life`; if this task is cancelled, do what `on_interrupt` returns.

        An error of this client while the run goes on is raised as RunGoesOn.
        """
        living = asyncio.ensure_future(life)
        try:
            with self.errors_of(known):
                return await asyncio.shield(living)
        except asyncio.CancelledError:
            _clear_cancellation()
            return await self.interrupt(known, living, on_interrupt())

    @contextlib.contextmanager
    def errors_of(self, known: KnownRun) -> Iterator[None]:
        """Raise errors of the block as RunGoesOn if the run may go on nevertheless."""
        try:
            yield
        except (RunLost, ClusterBusy):
            raise
        except Exception as error:
            if not self.head.start_requested:
                raise
            closed = isinstance(error, BrokenPipeError)
            why = "nobody reads its output" if closed else _describe(error)
            raise RunGoesOn(known, why) from error

    async def interrupt(
        self, known: KnownRun, living: asyncio.Future[RunResult], answer: Answer
    ) -> RunResult:
        """Do what the user answered to Ctrl-C; `living` is the task that follows the run.

        Return its result if the run is to be stopped, or has ended meanwhile.
        """
        try:
            async with asyncio.timeout(STOP_S):
                # A start that is under way cannot be revoked: wait for it, then stop the run.
                starting = asyncio.ensure_future(self._started.wait())
                either: list[asyncio.Future[Any]] = [starting, living]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                starting.cancel()
                if answer != "detach" and not living.done():
                    await self.head.send("stop")
                if answer == "stop" or living.done():
                    return await asyncio.shield(living)
        except TimeoutError as error:
            raise Interrupted(*self.stop_failure()) from error
        finally:
            await _end(living)
        if answer == "detach":
            raise Detached(known)
        raise self.aborted()

    def aborted(self) -> Interrupted:
        """Return the error for a run that was asked to stop while nobody waits for its end."""
        return Interrupted(
            f"run {self._run_id} was asked to stop, and gpuctl does not wait for its end",
            f"`gpuctl wait {self._run_id}` does",
        )

    def stop_failure(self) -> tuple[str, str]:
        """Return message and hint for a run that did not stop in time."""
        return (
            f"run {self._run_id} did not end within {STOP_S} s of being stopped",
            f"try `gpuctl stop {self._run_id}` again, or remove the cluster with"
            f" `gpuctl down {self.head.inventory.cluster}`",
        )

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
                if time.monotonic() - heard > RECONNECT_S:
                    raise NodeError(
                        f"the head does not answer: {error.message}",
                        f"if it works, the run goes on: try `gpuctl attach {self._run_id}` again",
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 15.0)

    def _report_silence(self, history: History, seconds: float, error: NodeError) -> None:
        """Report a head that has not answered for SILENT_S; the caller may know that it is gone."""
        if seconds < SILENT_S:
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
            history, f"{self.head.node.name} was lost: {taken}", "`gpuctl up` replaces it"
        )

    def _record_loss(self, history: History, reason: str, hint: str) -> RunLost:
        """Mark the run as lost in the history, and return the error for the caller to raise."""
        history.mark_lost(self._run_id, reason)
        return RunLost.of(self._run_id, reason, hint)

    async def _read_journal(self, record: JournalCopy, history: History) -> RunResult:
        """Read the journal; return the run's result. NodeError if the connection breaks first."""
        lost = ""
        async with self.head.journal(record.offset) as lines:
            async for line in lines:
                try:
                    event = parse_event(line)
                except ValueError:  # a part of a line, from a connection that broke
                    continue
                if isinstance(event, SupervisorLost):
                    lost = event.reason
                    break
                record.append(line)
                if event is not None:
                    self._see(event, history)
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
            f"the supervisor on {self.head.node.name} ended without a result",
            "the nodes end the job within two minutes; read"
            f" `journalctl -u gpuctl-run-{self._run_id}` on {self.head.node.name}",
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
                        record.append(line)
                        self._see(event, history)
                    if isinstance(event, NotificationsEnded) and self._on_stop == "destroy":
                        return

    def _see(self, event: Event, history: History) -> None:
        self._collector.see(event)
        if isinstance(event, FirstEvent):
            self._notifies = event.notifies
        if isinstance(event, RunStarted):
            history.mark_started(self._run_id)
            self._on_stop = event.on_stop
            self._head_rank = {n.name: n.rank for n in event.nodes}.get(self.head.node.name)
        if isinstance(event, NodeInterrupted) and event.rank == self._head_rank:
            self._head_notice = event
        if isinstance(event, Evidence):
            folder = evidence_folder(self._runs, self._run_id)
            write_evidence(folder, event.node, event.source, event.text)
        self._results.see(event, history)
        self._on_event(event)


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel the task, and wait until it has closed its connection."""
    task.cancel()
    await asyncio.wait([task], timeout=CALL_S)


def _describe(error: Exception) -> str:
    if isinstance(error, GpuctlError):
        return error.message
    return f"{type(error).__name__}: {error}"


def _clear_cancellation() -> None:
    """Undo the cancellation of the current task, so that it can still await."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
