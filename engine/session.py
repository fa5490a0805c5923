"""The client's side of a run: send the agent, start the supervisor, follow its journal.

Once the supervisor runs, the run no longer needs the client. The next client that follows the run
reads on from where the local copy of the journal ends.
"""

import asyncio
import contextlib
import json
import shlex
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from config.errors import GpuctlError, Interrupted, NodeError, RunError
from engine.agent.main import BUSY
from engine.bundle import agent_bundle, ship_agent
from engine.events import (
    Event,
    Evidence,
    NodeInterrupted,
    RunStarted,
    SupervisorLost,
    parse_event,
)
from engine.history import History
from engine.journal_copy import JournalCopy, evidence_folder, recorded_events, write_evidence
from engine.kept_results import KeptResults
from engine.launch_plan import LaunchPlan
from engine.places import run_folder
from engine.result import ResultCollector, RunResult
from engine.setting import setting
from nodes.inventory import Inventory
from nodes.kept_connections import connect

OnEvent = Callable[[Event], None]

RECONNECT_S = 300
"""Seconds to retry a head that does not answer; the run goes on there meanwhile."""
STOP_S = 60
"""Seconds to wait for a run to stop: its supervisor gives its nodes up after 30 s."""
INTERRUPTED_HEAD_S = 60
"""Seconds to retry a head after the time at which AWS announced to reclaim its spot instance."""
_START_S = 120
_CALL_S = 30
_RENEW_S = 30.0  # a sixth of the supervisor's LEASE_S
_NO_AGENT = 97  # from the command in `_start`; the agent itself ends with 0 to 3


class RunGoesOn(RunError):
    """An error of the client alone: the run goes on, so its cluster must not be destroyed."""

    def __init__(self, plan: LaunchPlan, why: str) -> None:
        run, cluster = plan.run_id, plan.cluster
        hint = f"`gpuctl logs {run} -f` follows it, `gpuctl stop {run}` ends it"
        if plan.on_stop == "destroy":
            hint += (
                f"; at its end the nodes power off, and `gpuctl down {cluster}` removes the rest"
            )
        super().__init__(f"run {run} goes on without this client: {why}", hint)


class RunLost(RunError):
    """A run that has no result, because its supervisor or its head is gone."""


class ClusterBusy(RunError):
    """A cluster that another run holds: this run did not start, and the cluster is unchanged."""


async def run(
    plan: LaunchPlan,
    inventory: Inventory,
    runs: Path,
    on_event: OnEvent,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> RunResult:
    """Run the plan to its end and return its result; record it in the folder `runs`.

    On return no process of the run is left on any node. `secrets` maps the names in the plan to
    their values (engine/secrets.py). Cancellation (Ctrl-C) stops the run on the nodes and returns
    its result. If the plan has `on_stop: destroy`, the caller has to destroy the cluster, within
    `prevent_power_off`.
    Raises NodeError or RunError when gpuctl fails. Two kinds of RunError, ClusterBusy and
    RunGoesOn, mean that the cluster must not be destroyed. Raises Interrupted when a run did not
    stop in time.
    """
    session = _Session(plan.run_id, inventory, runs, on_event)
    started = asyncio.Event()

    async def life() -> RunResult:
        await session.start(plan, secrets)
        started.set()
        return await session.follow()

    living = asyncio.ensure_future(life())
    try:
        result = await asyncio.shield(living)
    except asyncio.CancelledError:
        _clear_cancellation()
        result = await session.interrupt(living, started)
    except (RunLost, ClusterBusy):
        raise
    except Exception as error:
        if not session.start_requested:
            raise
        why = "nobody reads its output" if isinstance(error, BrokenPipeError) else _describe(error)
        raise RunGoesOn(plan, why) from error
    return result


async def follow(run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent) -> RunResult:
    """Follow the run to its end and return its result.

    `on_event` gets every event from the run's beginning, recorded ones first. Cancellation does
    not stop the run.
    """
    return await _Session(run_id, inventory, runs, on_event).follow()


async def stop(
    run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent = lambda _: None
) -> RunResult:
    """Stop the run, if it has not ended, and return its result.

    On return no process of the run is left on any node. If the run has `on_stop: destroy`, its
    nodes power off a minute later, unless the caller destroys the cluster within
    `prevent_power_off`.
    """
    session = _Session(run_id, inventory, runs, on_event)
    await _call(inventory, run_id, "stop")
    try:
        async with asyncio.timeout(STOP_S):
            return await session.follow()
    except TimeoutError as error:
        raise RunError(*session.stop_failure()) from error


@contextlib.contextmanager
def prevent_power_off(run_id: str, inventory: Inventory) -> Iterator[None]:
    """Keep the run's nodes powered on while the caller destroys the cluster.

    Acknowledge to the supervisor every _RENEW_S seconds. When that ends, because the caller is
    done or has died, the nodes power off after LEASE_S (engine/agent/supervisor.py).
    """
    ended = threading.Event()

    async def renew() -> None:
        # not nodes.kept_connections: its broker would outlive the cluster
        from nodes.ssh import connect as connect_anew

        while not ended.is_set():
            with contextlib.suppress(
                NodeError
            ):  # parts of the path to the head are removed already
                async with connect_anew(inventory) as connections:
                    while not ended.is_set():
                        await connections.run(
                            inventory.nodes[0], _agent("send", run_id, "ack"), timeout=_CALL_S
                        )
                        await asyncio.to_thread(ended.wait, _RENEW_S)
            await asyncio.to_thread(ended.wait, 1.0)

    renewing = threading.Thread(target=lambda: asyncio.run(renew()), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join(_CALL_S)


class _Session:
    """One client's connection to one run."""

    def __init__(self, run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent) -> None:
        self._run_id, self._inventory, self._runs = run_id, inventory, runs
        self._on_event = on_event
        self._head = inventory.nodes[0]
        self._collector = ResultCollector()
        self._results = KeptResults(run_id)
        self._head_notice: NodeInterrupted | None = None
        self._on_stop = "keep"
        self.start_requested = False
        """True once the head was asked to start the run: it may be active even after an error."""

    async def start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        """Start the supervisor on the head with plan and secrets; add the run to the history."""
        with History(self._runs) as history:
            history.begin(plan, setting(plan, self._inventory))
            try:
                await self._start(plan, secrets)
            except GpuctlError:
                history.drop(plan.run_id)
                raise

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

    async def interrupt(
        self, living: asyncio.Future[RunResult], started: asyncio.Event
    ) -> RunResult:
        """Stop the run and return the result of `living`, the task that follows it."""
        try:
            async with asyncio.timeout(STOP_S):
                # A start that is under way cannot be revoked: wait for it, then stop the run.
                starting = asyncio.ensure_future(started.wait())
                either: list[asyncio.Future[Any]] = [starting, living]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                starting.cancel()
                if not living.done():
                    await _call(self._inventory, self._run_id, "stop")
                return await asyncio.shield(living)
        except TimeoutError as error:
            raise Interrupted(*self.stop_failure()) from error
        finally:
            living.cancel()

    def stop_failure(self) -> tuple[str, str]:
        """Return message and hint for a run that did not stop in time."""
        return (
            f"run {self._run_id} did not end within {STOP_S} s of being stopped",
            f"try `gpuctl stop {self._run_id}` again, or remove the cluster with"
            f" `gpuctl down {self._inventory.cluster}`",
        )

    async def _start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        bundle, head = agent_bundle(), self._head
        used = {name: secrets[name] for node in plan.nodes for name in node.secrets.values()}
        async with connect(self._inventory) as connections:
            # Environment and secrets go through stdin: every user of the machine can see arguments.
            start = shlex.join(["python3", "-IS", bundle.program, "start", run_folder(plan.run_id)])
            command = f"test -d {bundle.path} || exit {_NO_AGENT}; exec {start}"
            text = json.dumps({"plan": plan.model_dump(mode="json"), "secrets": used})
            self.start_requested = True
            done = await connections.run(head, command, stdin=text, timeout=_START_S)
            if done.exit_status == _NO_AGENT:  # the head does not have this gpuctl's agent yet
                await ship_agent(connections, head)
                done = await connections.run(head, command, stdin=text, timeout=_START_S)
        self.start_requested = done.exit_status == 0
        if done.exit_status == BUSY:
            other = json.loads(done.stdout)["busy"]
            raise ClusterBusy(
                f"cluster {plan.cluster} is busy with run {other}",
                f"wait for it (`gpuctl logs {other} -f`) or stop it (`gpuctl stop {other}`)",
            )
        if done.exit_status != 0:
            errors = done.stderr.strip().splitlines() or ["no reason given"]
            raise RunError(
                f"{head.name} ({head.private_ip}) cannot start the run: {errors[-1]}",
                f"log in with `gpuctl ssh {plan.cluster} {head.name}` to find out why",
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
                if time.monotonic() - heard > RECONNECT_S:
                    raise NodeError(
                        f"the head does not answer: {error.message}",
                        f"if it works, the run goes on: try `gpuctl logs {self._run_id} -f` again",
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 15.0)

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
            history, f"{self._head.name} was lost: {taken}", "`gpuctl up` replaces it"
        )

    def _record_loss(self, history: History, reason: str, hint: str) -> RunLost:
        """Mark the run as lost in the history, and return the error for the caller to raise."""
        history.mark_lost(self._run_id, reason)
        return RunLost(f"run {self._run_id}: {reason}", hint)

    async def _read_journal(self, record: JournalCopy, history: History) -> RunResult:
        """Read the journal; return the run's result. NodeError if the connection breaks first."""
        command = _agent("follow", self._run_id, "--from", str(record.offset))
        async with (
            connect(self._inventory) as connections,
            contextlib.aclosing(connections.lines(self._head, command)) as lines,
        ):
            async for line in lines:
                try:
                    event = parse_event(line)
                except ValueError:  # a part of a line, from a connection that broke
                    continue
                if isinstance(event, SupervisorLost):
                    break
                record.append(line)
                if event is not None:
                    self._see(event, history)
                result = self._collector.result()
                if result is not None:
                    await self._await_end(lines)
                    return result
        if self._head_notice is not None:
            raise self._record_interruption(history, self._head_notice)
        raise self._record_loss(
            history,
            f"the supervisor on {self._head.name} ended without a result",
            f"the nodes end the job within 20 s; read `journalctl -u gpuctl-run-{self._run_id}`"
            f" on {self._head.name}",
        )

    async def _await_end(self, lines: AsyncIterator[str]) -> None:
        """Wait until the supervisor has ended, so that the cluster is free for the next run.

        Return at once if the supervisor still waits for a client that destroys the cluster.
        """
        if self._on_stop == "destroy":
            return
        with contextlib.suppress(TimeoutError, NodeError):  # the run itself is over
            async with asyncio.timeout(_CALL_S):
                async for _ in lines:
                    pass

    def _see(self, event: Event, history: History) -> None:
        self._collector.see(event)
        if isinstance(event, RunStarted):
            self._on_stop = event.on_stop
        if isinstance(event, NodeInterrupted) and event.rank == self._head.rank:
            self._head_notice = event
        if isinstance(event, Evidence):
            folder = evidence_folder(self._runs, self._run_id)
            write_evidence(folder, event.node, event.source, event.text)
        self._results.see(event, history)
        self._on_event(event)


async def _call(inventory: Inventory, run_id: str, word: str) -> None:
    """Send `stop` or `ack` to the run's supervisor; do nothing if it has ended."""
    async with connect(inventory) as connections:
        await connections.run(inventory.nodes[0], _agent("send", run_id, word), timeout=_CALL_S)


def _agent(command: str, run_id: str, *arguments: str) -> str:
    """Return the shell command that calls the agent of the run; it does nothing without a run."""
    folder = run_folder(run_id)
    agent = f"{folder}/agent.pyz"
    return f"test ! -e {agent} || exec python3 -IS " + shlex.join(
        [agent, command, folder, *arguments]
    )


def _describe(error: Exception) -> str:
    if isinstance(error, GpuctlError):
        return error.message
    return f"{type(error).__name__}: {error}"


def _clear_cancellation() -> None:
    """Undo the cancellation of the current task, so that it can still await."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
