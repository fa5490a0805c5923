"""A run from the client's side: ship the agent, start the supervisor, follow its journal.

Once the supervisor runs, the client may die, sleep or change: whoever follows next goes on where
the local copy of the journal ends.
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
from engine.agent.launcher import receive_agent
from engine.bundle import Bundle, agent_bundle
from engine.events import (
    Event,
    Evidence,
    NodeInterrupted,
    RunStarted,
    SupervisorLost,
    parse_event,
)
from engine.history import History
from engine.kept_results import KeptResults
from engine.launch_plan import LaunchPlan
from engine.places import run_folder
from engine.record import Record, evidence_folder, recorded_events, write_evidence
from engine.result import ResultOf, RunResult
from nodes.answers import Completed
from nodes.inventory import Inventory
from nodes.kept import KeptConnections, connect

OnEvent = Callable[[Event], None]

RECONNECT_S = 300
"""How long a head that does not answer is tried; the run goes on there meanwhile."""
STOP_S = 60
"""How long a stopping run is waited for: its nodes are given up after 30 s."""
TAKEN_BACK_S = 60
"""How long a head is tried after AWS was to take its spot instance back."""
_START_S = 120
_CALL_S = 30
_RENEW_S = 30.0  # a sixth of the supervisor's LEASE_S
_BUSY = 3  # BUSY in engine/agent/main.py
_NO_AGENT = 97  # of our own command line; the agent itself ends with 0 to 3


class RunGoesOn(RunError):
    """The run goes on, and its client cannot follow it any more: it is nothing to destroy."""

    def __init__(self, plan: LaunchPlan, why: str) -> None:
        run, cluster = plan.run_id, plan.cluster
        hint = f"`gpuctl logs {run} -f` follows it, `gpuctl stop {run}` ends it"
        if plan.on_stop == "destroy":
            hint += (
                f"; at its end the nodes power off, and `gpuctl down {cluster}` removes the rest"
            )
        super().__init__(f"run {run} goes on without this client: {why}", hint)


class RunLost(RunError):
    """The run has no result: its supervisor, or the head, is gone."""


class ClusterBusy(RunError):
    """Another run holds the cluster; this one did not begin, and nothing of the cluster changed."""


async def run(
    plan: LaunchPlan,
    inventory: Inventory,
    runs: Path,
    on_event: OnEvent,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> RunResult:
    """The run is over, nothing of it runs on any node, and its record is in `runs`.

    `secrets` has the values of those that the plan names (engine/secrets.py).
    Ctrl-C (cancellation) stops the run on the nodes, and its result is returned. Where the plan
    says `destroy`, the caller has to do it, see `attending`.
    Raises NodeError or RunError when the engine itself fails; ClusterBusy and RunGoesOn among them
    say that there is nothing to destroy. Interrupted when a run that was told to stop did not.
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
        _forgive_cancellation()
        result = await session.interrupt(living, started)
    except (RunLost, ClusterBusy):
        raise
    except Exception as error:
        if not session.was_asked:
            raise
        why = "nobody reads its output" if isinstance(error, BrokenPipeError) else _in_words(error)
        raise RunGoesOn(plan, why) from error
    return result


async def follow(run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent) -> RunResult:
    """The run is over; `on_event` saw every event from its beginning, recorded ones first.

    Cancellation leaves the run alone.
    """
    return await _Session(run_id, inventory, runs, on_event).follow()


async def stop(
    run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent = lambda _: None
) -> RunResult:
    """The run was stopped, or had ended before; nothing of it runs on any node.

    Where the run says `destroy`, its nodes power off a minute later, unless the caller destroys
    the cluster, see `attending`.
    """
    session = _Session(run_id, inventory, runs, on_event)
    await _call(inventory, run_id, "stop")
    try:
        async with asyncio.timeout(STOP_S):
            return await session.follow()
    except TimeoutError as error:
        raise RunError(*session.not_stopping()) from error


@contextlib.contextmanager
def attending(run_id: str, inventory: Inventory) -> Iterator[None]:
    """Keep the run's nodes from powering off: the caller destroys the cluster meanwhile.

    When that fails, or the caller dies, they power off after LEASE_S of the supervisor's.
    """
    ended = threading.Event()

    async def renew() -> None:
        from nodes.ssh import connect as connect_anew  # a kept connection would outlive the cluster

        while not ended.is_set():
            with contextlib.suppress(NodeError):  # parts of the way there are gone
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
    """One client's view of one run."""

    def __init__(self, run_id: str, inventory: Inventory, runs: Path, on_event: OnEvent) -> None:
        self._run_id, self._inventory, self._runs = run_id, inventory, runs
        self._on_event = on_event
        self._head = inventory.nodes[0]
        self._result_of = ResultOf()
        self._results = KeptResults(run_id)
        self._head_notice: NodeInterrupted | None = None
        self._on_stop = "keep"
        self.was_asked = False
        """True once the head was asked to start the run, which may run then whatever came back."""

    async def start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        """The supervisor runs on the head, and has plan and secrets; the history knows the run."""
        with History(self._runs) as history:
            history.begin(plan)
            try:
                await self._start(plan, secrets)
            except GpuctlError:
                history.drop(plan.run_id)
                raise

    async def follow(self) -> RunResult:
        """The run is over; events were seen, rows and result are in the history."""
        with (
            History(self._runs) as history,
            contextlib.closing(Record(self._runs, self._run_id)) as record,
        ):
            for event in recorded_events(self._runs, self._run_id):
                self._see(event, history)
            result = self._result_of.result() or await self._follow_head(record, history)
            history.finish(result)
            return result

    async def interrupt(
        self, living: asyncio.Future[RunResult], started: asyncio.Event
    ) -> RunResult:
        """The run was told to stop, and `living`, which follows it, has its result."""
        try:
            async with asyncio.timeout(STOP_S):
                # A start under way cannot be called back: it is waited for, then stopped.
                starting = asyncio.ensure_future(started.wait())
                either: list[asyncio.Future[Any]] = [starting, living]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                starting.cancel()
                if not living.done():
                    await _call(self._inventory, self._run_id, "stop")
                return await asyncio.shield(living)
        except TimeoutError as error:
            raise Interrupted(*self.not_stopping()) from error
        finally:
            living.cancel()

    def not_stopping(self) -> tuple[str, str]:
        """Message and hint for a run that goes on although it was told to stop."""
        return (
            f"run {self._run_id} did not end within {STOP_S} s of being stopped",
            f"try `gpuctl stop {self._run_id}` again, or `gpuctl down {self._inventory.cluster}`",
        )

    async def _start(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> None:
        bundle, head = agent_bundle(), self._head
        used = {name: secrets[name] for node in plan.nodes for name in node.secrets.values()}
        async with connect(self._inventory) as connections:
            # Environment and secrets go through stdin: arguments are seen by everybody.
            start = shlex.join(["python3", "-IS", bundle.program, "start", run_folder(plan.run_id)])
            command = f"test -d {bundle.path} || exit {_NO_AGENT}; exec {start}"
            text = json.dumps({"plan": plan.model_dump(mode="json"), "secrets": used})
            self.was_asked = True
            done = await connections.run(head, command, stdin=text, timeout=_START_S)
            if done.exit_status == _NO_AGENT:  # this head has run nothing of this gpuctl yet
                done = await self._ship(connections, bundle)
                if done.exit_status == 0:
                    done = await connections.run(head, command, stdin=text, timeout=_START_S)
        self.was_asked = done.exit_status == 0
        if done.exit_status == _BUSY:
            other = json.loads(done.stdout)["busy"]
            raise ClusterBusy(
                f"cluster {plan.cluster} is busy with run {other}",
                f"wait for it (`gpuctl logs {other} -f`) or stop it (`gpuctl stop {other}`)",
            )
        if done.exit_status != 0:
            complaints = done.stderr.strip().splitlines() or ["it said nothing"]
            raise RunError(
                f"{head.name} ({head.private_ip}) cannot start the run: {complaints[-1]}",
                f"look at it with `gpuctl ssh {plan.cluster} {head.name}`",
            )

    async def _ship(self, connections: KeptConnections, bundle: Bundle) -> Completed:
        """Put the agent on the head: unpacked for itself, and as an archive for the others."""
        archive = f"{bundle.path}.pyz"
        await connections.put(self._head, bundle.data, archive, 0o644)
        unpack = f"umask 022; {receive_agent(bundle.path, bundle.data)}"
        command = f"{{ {unpack}; }} < {archive}"
        return await connections.run(self._head, command, timeout=_CALL_S)

    async def _follow_head(self, record: Record, history: History) -> RunResult:
        """Follows the head's journal through lost connections, to the run's end."""
        heard, pause = time.monotonic(), 1.0
        while True:
            before = record.offset
            try:
                return await self._read_journal(record, history)
            except NodeError as error:
                if record.offset != before:
                    heard, pause = time.monotonic(), 1.0
                self._give_up_head_taken_back(history)
                if time.monotonic() - heard > RECONNECT_S:
                    raise NodeError(
                        f"the head does not answer: {error.message}",
                        f"if it lives the run goes on: `gpuctl logs {self._run_id} -f`",
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 15.0)

    def _give_up_head_taken_back(self, history: History) -> None:
        """RunError where the head does not answer because AWS has taken it back."""
        notice = self._head_notice
        if notice is None:
            return
        try:
            end = datetime.fromisoformat(notice.at).timestamp()
        except ValueError:  # no time that we can read: it is tried as any other
            return
        if time.time() > end + TAKEN_BACK_S:
            raise self._taken_back(history, notice)

    def _taken_back(self, history: History, notice: NodeInterrupted) -> RunLost:
        taken = f"AWS took its spot instance back ({notice.action} at {notice.at})"
        return self._lost(
            history, f"{self._head.name} was lost: {taken}", "`gpuctl up` makes it again"
        )

    def _lost(self, history: History, reason: str, hint: str) -> RunLost:
        """The run has no result: history knows why, and the caller raises what this returns."""
        history.lose(self._run_id, reason)
        return RunLost(f"run {self._run_id}: {reason}", hint)

    async def _read_journal(self, record: Record, history: History) -> RunResult:
        """The result; NodeError when the connection broke first."""
        command = _agent("follow", self._run_id, "--from", str(record.offset))
        async with (
            connect(self._inventory) as connections,
            contextlib.aclosing(connections.lines(self._head, command)) as lines,
        ):
            async for line in lines:
                try:
                    event = parse_event(line)
                except ValueError:  # what a connection that broke left of a line
                    continue
                if isinstance(event, SupervisorLost):
                    break
                record.append(line)
                if event is not None:
                    self._see(event, history)
                result = self._result_of.result()
                if result is not None:
                    await self._await_end(lines)
                    return result
        if self._head_notice is not None:
            raise self._taken_back(history, self._head_notice)
        raise self._lost(
            history,
            f"the supervisor on {self._head.name} ended without a result",
            f"its nodes end the job within 20 s; see `journalctl -u gpuctl-run-{self._run_id}`",
        )

    async def _await_end(self, lines: AsyncIterator[str]) -> None:
        """Wait until the supervisor has ended, so that the cluster is free for the next run.

        Not where it still waits for a client that destroys the cluster.
        """
        if self._on_stop == "destroy":
            return
        with contextlib.suppress(TimeoutError, NodeError):  # the run itself is over
            async with asyncio.timeout(_CALL_S):
                async for _ in lines:
                    pass

    def _see(self, event: Event, history: History) -> None:
        self._result_of.see(event)
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
    """The run's supervisor has heard `stop` or `ack`; one that has ended needs neither."""
    async with connect(inventory) as connections:
        await connections.run(inventory.nodes[0], _agent("send", run_id, word), timeout=_CALL_S)


def _agent(command: str, run_id: str, *arguments: str) -> str:
    """The shell command for the agent that started the run, on the head; nothing if it is gone."""
    folder = run_folder(run_id)
    agent = f"{folder}/agent.pyz"
    return f"test ! -e {agent} || exec python3 -IS " + shlex.join(
        [agent, command, folder, *arguments]
    )


def _in_words(error: Exception) -> str:
    if isinstance(error, GpuctlError):
        return error.message
    return f"{type(error).__name__}: {error}"


def _forgive_cancellation() -> None:
    """The current task goes on as if it had not been cancelled."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
