"""The client's side of a run: start its supervisor, follow it to its end, stop or leave it.

Once the supervisor runs, the run no longer needs the client.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from config.command_text import command_text
from config.errors import GpuctlError, Interrupted, RunError
from engine.contract.event import Event
from engine.contract.plan import LaunchPlan
from engine.record.events import FirstEvent
from engine.record.history import History
from engine.record.result import RunResult
from engine.record.run_context import setting
from engine.record.run_errors import NOBODY_READS, Detached, KnownRun, RunGoesOn, RunLost
from engine.session.following import LIMITS, Following, Limits, OnEvent
from engine.session.head import CALL_S, ClusterBusy, Head
from nodes.inventory import Inventory

Answer = Literal["stop", "detach", "abort"]
"""What Ctrl-C means for a run that this client follows. `stop` stops the run and waits for its
result; `detach` leaves the run alone; `abort` stops the run and does not wait."""
OnInterrupt = Callable[[], Answer]

START_S = 60
"""Seconds to wait for a start that cannot be revoked."""


def stop_s(grace_s: int) -> int:
    """Return the seconds to wait for a run with this `stop_grace` to stop.

    Its supervisor gives up its nodes 30 s earlier (RunningAttempt.stop).
    """
    return 2 * grace_s + 40


async def run(
    plan: LaunchPlan,
    inventory: Inventory,
    runs: Path,
    on_event: OnEvent,
    secrets: Mapping[str, str] = MappingProxyType({}),
    on_interrupt: OnInterrupt = lambda: "stop",
    limits: Limits = LIMITS,
) -> RunResult:
    """Run the plan to its end and return its result; record it in the folder `runs`.

    On return no process of the run is left on any node. `secrets` maps the names in the plan to
    their values (plan/secrets.py). Cancellation (Ctrl-C) does what `on_interrupt` returns. If the
    plan has `on_stop: destroy`, the caller has to destroy the cluster, within `prevent_power_off`.
    Raises NodeError or RunError when gpuctl fails. Three kinds of RunError, ClusterBusy, RunGoesOn
    and Detached, mean that the cluster must not be destroyed. Raises Interrupted when a run did not
    stop in time, and after `abort`.
    """
    session = _Session(Head(inventory, plan.run_id), plan.run_id, runs, on_event, limits)

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
            await asyncio.wait_for(starting, START_S)  # it cannot be revoked
            await session.head.send("stop")
        except TimeoutError as error:
            raise Interrupted(*session.stop_failure(START_S)) from error
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


async def follow(
    run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent, limits: Limits = LIMITS
) -> RunResult:
    """Follow the run to its end and return its result.

    `on_event` gets every event from the run's beginning, recorded ones first. Cancellation does
    not stop the run.
    """
    return await Following(Head(inventory, run_id), run_id, runs, on_event, limits).follow()


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
    run_id: str,
    inventory: Inventory,
    runs: Path,
    on_event: OnEvent = lambda _: None,
    notice_s: int = 0,
) -> RunResult:
    """Stop the run, if it has not ended, and return its result.

    Its job gets notice `notice_s` before. On return no process of the run is left on any node. If
    the run has `on_stop: destroy`, its nodes power off a minute later, unless the caller destroys
    the cluster within `prevent_power_off`.
    """
    seconds, began = notice_s + stop_s(0), asyncio.get_running_loop().time()

    def see(event: Event) -> None:
        nonlocal seconds
        if isinstance(event, FirstEvent):
            seconds = notice_s + stop_s(event.stop_grace_s)
            limit.reschedule(began + seconds)
        on_event(event)

    session = _Session(Head(inventory, run_id), run_id, runs, see)
    await session.head.send(f"stop {notice_s}" if notice_s else "stop")
    try:
        async with asyncio.timeout(seconds) as limit:
            return await session.follow()
    except TimeoutError as error:
        raise RunError(*session.stop_failure(seconds)) from error


class _Session:
    """One client's connection to one run."""

    def __init__(
        self, head: Head, run_id: str, runs: Path, on_event: OnEvent, limits: Limits = LIMITS
    ) -> None:
        self.head = head
        self._run_id, self._runs = run_id, runs
        self.follow = Following(head, run_id, runs, on_event, limits).follow
        self._started = asyncio.Event()
        if head.start_requested:  # by another client
            self._started.set()

    async def start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        """Start the supervisor on the head with plan and secrets; add the run to the history."""
        with History(self._runs) as history:
            inventory = self.head.inventory
            history.begin(plan, setting(plan, inventory), self.head.node.instance_id)
            try:
                await self.head.start(plan, secrets)
            except GpuctlError:
                history.drop(plan.run_id)
                raise
        self._started.set()

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
            why = NOBODY_READS if isinstance(error, BrokenPipeError) else _describe(error)
            raise RunGoesOn(known, why) from error

    async def interrupt(
        self, known: KnownRun, living: asyncio.Future[RunResult], answer: Answer
    ) -> RunResult:
        """Do what the user answered to Ctrl-C; `living` is the task that follows the run.

        Return its result if the run is to be stopped, or has ended meanwhile.
        """
        seconds = stop_s(known.stop_grace_s)
        try:
            async with asyncio.timeout(seconds):
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
            raise Interrupted(*self.stop_failure(seconds)) from error
        finally:
            await _end(living)
        if answer == "detach":
            raise Detached(known)
        raise self.aborted()

    def aborted(self) -> Interrupted:
        """Return the error for a run that was asked to stop while nobody waits for its end."""
        return Interrupted(
            f"run {self._run_id} was asked to stop, and gpuctl does not wait for its end",
            f"{command_text('gpuctl wait {}', self._run_id)} does",
        )

    def stop_failure(self, seconds: int) -> tuple[str, str]:
        """Return message and hint for a run that did not stop within so many seconds."""
        return (
            f"run {self._run_id} did not end within {seconds} s of being stopped",
            f"try {command_text('gpuctl stop {}', self._run_id)} again, or remove the cluster with"
            f" {command_text('gpuctl down {}', self.head.inventory.cluster)}",
        )


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
