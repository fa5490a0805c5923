"""One attempt of a run, for its supervisor: from the launch of the workers to the end on all nodes.

What a worker reports is recorded, and the actions that follow are carried out. An attempt has time
limits: until the job has started, and between lines of its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets as random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

from engine.agent.head.hang_examination import HangExamination
from engine.agent.head.recorder import Recorder
from engine.agent.head.states import Action, Nodes, PassOn, Start, Stop
from engine.agent.head.tasks import Tasks
from engine.agent.journal.clock import StepWatch, step_text, time_of_day
from engine.agent.journal.journal_file import Message
from engine.agent.judge.output_reader import OutputReader
from engine.agent.link.heartbeat import HeartbeatServer
from engine.agent.link.heartbeat_process import BEAT_S
from engine.agent.link.launcher import Launcher
from engine.agent.link.times import Times
from engine.agent.link.worker_link import MalformedEvent
from engine.agent.link.workers import Workers
from engine.agent.metrics.samples import Samples
from engine.agent.node import evidence, supervisor_link
from engine.agent.node.job_notice import LEASE, notice_order, order_of
from engine.contract.codec import to_json
from engine.contract.event import Event, NodeEvent, change
from engine.contract.head_events import (
    HangJudged,
    LeaseEnding,
    NodeAnswersAgain,
    NodeGone,
    NodeLost,
    NodeUnreachable,
    OutputJudged,
    OutputStopped,
    StartupOver,
)
from engine.contract.node_plan import HeartbeatAddress, WorkOrder
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.contract.worker_events import (
    ClockSet,
    HeadSilent,
    NodeExamined,
    NodeExited,
    NodeFact,
    NodeInterrupted,
    NodePrepared,
    NodeStarted,
    NodeStopped,
    NoticeGiven,
    Output,
    RanksExamined,
    Sample,
)

RESUMED_S = 10.0
"""Seconds for the workers' reports that an earlier supervisor did not get any more."""


class Limits:
    """The timers of an attempt while a `with` block runs; they record its ends with `record`.

    `nodes` are its nodes at the beginning. After an earlier supervisor, `passed` are the seconds
    since that one began the attempt, else None. `suspect` is called once in each silence that is
    longer than the plan's `hang` allows.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        record: Callable[[Event], object],
        suspect: Callable[[], object],
        nodes: Nodes,
        passed: float | None,
    ) -> None:
        self._record, self._suspect, self._nodes, self._passed = record, suspect, nodes, passed
        self._startup_s: int | None = plan.startup_timeout_s
        self._silences: dict[str, int] = {}
        """The longest silences that are allowed, in seconds, by the names of their timers."""
        if plan.no_output_timeout_s:
            self._silences["output"] = plan.no_output_timeout_s
        if plan.hang:
            self._silences["hang"] = plan.hang.after_s
        self.heard = 0.0
        """The time of the last line, by the event loop's clock."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __enter__(self) -> Limits:
        """Start the time for the start of the job."""
        if self._startup_s:
            left = float(self._startup_s)
            if self._passed is not None:
                left = max(RESUMED_S, left - self._passed)
            loop = asyncio.get_running_loop()
            self._timers["startup"] = loop.call_later(left, self._end_startup, self._startup_s)
        if self._nodes.count("started", "ready"):
            self.hear()
        return self

    def __exit__(self, *_: object) -> None:
        """End all timers."""
        for timer in self._timers.values():
            timer.cancel()

    def _end_startup(self, seconds: int) -> None:
        self._record(StartupOver(seconds))

    def hear(self) -> None:
        """Start the time without output anew: the job has started, or a node has printed a line."""
        if not self._silences:
            return
        self.heard = asyncio.get_running_loop().time()
        for name in self._silences:
            if name not in self._timers:
                self._look(name)

    def _look(self, name: str) -> None:
        """Report a silence that is too long; else look again when it could be."""
        loop = asyncio.get_running_loop()
        left = self.heard + self._silences[name] - loop.time()
        if left > 0:  # one timer, and not one per line of output
            self._timers[name] = loop.call_later(left, self._look, name)
        elif name == "output":
            self._record(OutputStopped(self._silences[name]))
        else:
            del self._timers[name]  # the next line starts it anew
            self._suspect()


def work_order(
    plan: LaunchPlan,
    rank: int,
    secrets: dict[str, str],
    *,
    is_waited_for: bool,
    restarts: int,
    heartbeats: HeartbeatAddress,
    times: Times,
) -> WorkOrder:
    """Return the order for the node with this rank; other nodes may wait until its job is ready.

    `restarts` is the number of attempts before this one.
    """
    node = plan.nodes[rank]
    environment = {**node.environment, "GPUCTL_RESTART_COUNT": str(restarts)}
    return WorkOrder(
        node=replace(node, environment=environment),
        hosts=plan.hosts,
        image=plan.image,
        code=plan.code,
        secrets={variable: secrets[name] for variable, name in node.secrets.items()},
        hidden=tuple(secrets.values()),
        ready=plan.ready if is_waited_for else None,
        grace_s=plan.stop_grace_s,
        lost_supervisor_s=times.lost_supervisor_s,
        is_spot=plan.is_spot,
        is_rented=plan.is_rented,
        on_notice=plan.on_notice,
        heartbeats=heartbeats,
    )


LOOPBACK = "127.0.0.1"
AGENT_KILLED = 128 + signal.SIGKILL
_KILLED = {
    supervisor_link.KILLED: "the job killed gpuctl's agent, for example with pkill, killall or"
    " kill -1; the node lives",
    supervisor_link.OUT_OF_MEMORY: "the kernel killed gpuctl's agent because memory was short;"
    " the node lives",
}
"""Why a job has failed on a node without a worker, by the reason that the node gives."""


class RunningAttempt:
    """An attempt, in an `async with` block: it launches the workers, and ends the connections.

    `output` is the reader of the attempt's output. `is_resumed` means that an earlier supervisor
    has begun the attempt.
    """

    def __init__(
        self,
        recorder: Recorder,
        output: OutputReader,
        samples: Samples,
        launcher: Launcher,
        secrets: dict[str, str],
        times: Times,
        *,
        is_resumed: bool,
    ) -> None:
        self._times = times
        self._recorder, self._record, self._run = recorder, recorder.record, recorder.state
        self._plan = recorder.state.plan
        self._output, self._samples = output, samples
        self._launcher, self._secrets, self._is_resumed = launcher, secrets, is_resumed
        began = self._run.began_attempt if is_resumed else None
        passed = None if began is None else recorder.journal.clock.now() - began
        self._limits = Limits(
            self._plan, self._record, self._suspect_hang, self._run.attempt.nodes, passed
        )
        self._workers = Workers(
            launcher,
            order=self._order,
            greet=self._greet,
            hear=self.receive,
            is_over=lambda: bool(self._run.attempt.verdict),
            received=self._run.received,
            grace_s=self._plan.stop_grace_s,
            times=times,
        )
        self._tasks = Tasks()
        self._heartbeats_run = True  # the process that answers heartbeats
        self._examined = set(self._run.examined)  # ranks with evidence, also if it is on its way
        self._hang: HangExamination | None = None  # the last one
        self._kept_hangs = 0  # examinations with evidence

    async def __aenter__(self) -> RunningAttempt:
        self._samples.begin(self._plan, self._recorder.journal.clock)
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as end:
            key, nodes = random.token_bytes(32), len(self._plan.nodes)
            self._heartbeats = HeartbeatServer(key, nodes, self._times)
            end.callback(self._heartbeats.close)
            end.push_async_callback(self._workers.close)
            await end.enter_async_context(self._tasks)
            loop.add_reader(self._heartbeats, self._hear_heartbeats)
            end.callback(lambda: loop.remove_reader(self._heartbeats))
            end.enter_context(self._limits)
            end.enter_context(self._recorder.carried_out_by(self._carry_out))
            self._tasks.start(self._keep_heartbeats())
            for rank in range(len(self._plan.nodes)):
                self._tasks.start(self._attend(rank))
            self._end = end.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end.aclose()

    async def stop(self) -> None:
        """Wait until no process is left on any node; give up those that do not stop in time."""
        state, most_s = self._run, 2 * self._plan.stop_grace_s + self._times.stop_s
        if not await self._recorder.wait_until(lambda: state.attempt.is_over, most_s):
            for rank, node in enumerate(state.attempt.nodes):
                if node.phase != "gone":
                    self._lose_node(rank, f"did not stop within {most_s:g} s")
            await self._recorder.wait_until(lambda: state.attempt.is_over)

    def judge(self) -> Verdict:
        """Return the verdict, in words that the run's output adds at the attempt's end."""
        assert self._run.attempt.verdict is not None
        events, verdict = self._output.end(self._run.attempt.verdict)
        for event in events:
            self._record(event)
        return verdict

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Start):
            self._workers.send(action.rank, {"do": "start"})
        elif isinstance(action, Stop):
            self._workers.send(action.rank, {"do": "stop"})
        elif isinstance(action, PassOn):
            for rank in range(len(self._plan.nodes)):
                self._workers.send(rank, self._notice_order(action.notice))

    def _notice_orders(self) -> list[Message]:
        """Return the orders to give notice of what is still to come."""
        orders = map(self._notice_order, self._run.notices)
        return [order for order in orders if (order["deadline"] or math.inf) > time.time()]

    def _notice_order(self, notice: Event) -> Message:
        """Return the order to give the job this notice."""
        rank = getattr(notice, "rank", None)
        name = None if rank is None else self._plan.nodes[rank].name
        if isinstance(notice, LeaseEnding):
            return notice_order(LEASE, notice.at, None)
        assert isinstance(notice, (NodeInterrupted, NoticeGiven))
        return order_of(notice, name)

    async def _keep_heartbeats(self) -> None:
        """Renew the supervisor's sign of life; restart the heartbeats' process if it was killed."""
        loop = asyncio.get_running_loop()
        clock, is_node = StepWatch(), self._plan.head_rank is not None
        while True:
            self._heartbeats.signal_alive()
            step = clock.look()
            if step and not is_node:  # else its worker reports it
                self._record(ClockSet(None, step, step_text(self._plan.head, step)))
            if not self._heartbeats_run:
                with contextlib.suppress(OSError):  # memory is short: the next try is after a beat
                    self._heartbeats.restart()
                    loop.add_reader(self._heartbeats, self._hear_heartbeats)
                    self._heartbeats_run = True
            await asyncio.sleep(BEAT_S)

    def _hear_heartbeats(self) -> None:
        """Read all reports that wait."""
        for report in self._heartbeats.reports():
            if report:
                self._hear_report(report)
            else:  # its process was killed, perhaps because memory was short
                asyncio.get_running_loop().remove_reader(self._heartbeats)
                self._heartbeats_run = False

    def _hear_report(self, report: Message) -> None:
        """Record that a node has become silent, or answers again."""
        rank = report["rank"]
        node = self._run.attempt.nodes[rank]
        if node.is_settled or node.has_ended:
            return
        if "silence_s" in report:
            self._record(NodeAnswersAgain(rank, report["silence_s"]))
        else:
            last = time_of_day(report["last_heard"])
            silence = f"{self._times.silence_s:g} s"
            self._lose_node(rank, f"has not answered for {silence} (last heard {last})")

    def _lose_node(self, rank: int, reason: str) -> None:
        """Report the node as lost; collect evidence, then give its worker up."""
        self._record(NodeLost(rank, reason))
        self._tasks.start(self._release_node(rank, reason))

    async def _release_node(self, rank: int, reason: str) -> None:
        try:
            await self._keep_evidence(rank)
        finally:
            self._workers.give_up(rank, reason)
            self._record(NodeGone(rank, reason))

    async def _keep_evidence(self, rank: int) -> None:
        """Write the evidence about a lost node to the run's folder and to the journal."""
        if rank in self._examined or len(self._examined) >= evidence.NODES:
            return
        self._examined.add(rank)
        node = self._plan.nodes[rank]
        texts = await evidence.collect(node.private_ip)
        texts["heartbeats"] = self._heartbeats.describe(rank) + "\n"
        texts["ssh"] = self._workers.stderr_text(rank)
        self._write_evidence(rank, texts)

    def _suspect_hang(self) -> None:
        if not self._run.attempt.verdict:
            self._tasks.start(self._examine_hang())

    async def _examine_hang(self) -> None:
        """Compare the ranks of a job that is silent, keep what they show, and record the verdict.

        A job that prints meanwhile does not hang.
        """
        hang, heard = self._plan.hang, self._limits.heard
        assert hang is not None
        nodes = tuple(self._run.attempt.nodes)
        self._hang = examination = HangExamination(nodes, self._workers.send)
        verdict = await examination.judge()
        if self._limits.heard != heard or self._run.attempt.verdict:
            return
        self._kept_hangs += 1
        if self._kept_hangs <= evidence.HANGS:
            texts = sorted(
                examination.texts(), key=lambda text: nodes[text[0]].name != verdict.node
            )
            for rank, text in texts[: evidence.HANG_NODES]:
                self._write_evidence(rank, {evidence.RANKS: text})
        named = [rank for rank, node in enumerate(nodes) if node.name == verdict.node]
        text = f"no node has printed a line for {hang.after_s} s (hang): {verdict.text}"
        self._record(HangJudged(named[0] if named else None, text, hang.action))

    def _write_evidence(self, rank: int, texts: dict[str, str]) -> None:
        """Write texts about the node, by their sources, to the run's folder and the journal."""
        folder, hidden = self._recorder.journal.folder, list(self._secrets.values())
        for event in evidence.keep(folder, self._plan.nodes[rank], texts, hidden):
            self._record(event)

    async def _attend(self, rank: int) -> None:
        """Follow the node's worker to its end; an error in gpuctl counts as a lost node."""
        node = self._run.attempt.nodes[rank]
        try:
            if node.phase == "gone":
                return
            if node.lost is not None:  # by an earlier supervisor
                await self._release_node(rank, node.lost)
            else:
                await self._follow(rank)
        except Exception as error:
            traceback.print_exc()
            reason = f"was lost: gpuctl failed ({type(error).__name__}: {error})"
            self._lose_node(rank, reason)

    async def _follow(self, rank: int) -> None:
        """Launch the node's worker, follow it to its end, and record how it ended.

        After an earlier supervisor, connect to the worker that it launched.
        """
        phase = self._run.attempt.nodes[rank].phase
        try:
            if self._is_resumed:
                reason = await self._workers.take_up(rank, may_launch=phase == "launching")
            else:
                reason = await self._workers.attend(rank)
        except OSError as error:  # no ssh, no systemd-run
            reason = f"its worker cannot be launched: {error}"
        node = self._run.attempt.nodes[rank]
        why = "" if node.is_settled else await self._workers.why_gone(rank)
        node = self._run.attempt.nodes[rank]
        is_idle = node.phase in ("launching", "prepared")
        if node.is_settled:
            pass  # recorded already
        elif self._run.attempt.verdict and is_idle:
            self._record(NodeStopped(rank, "never started"))
        elif why in _KILLED and not is_idle:
            self._record_killed_agent(rank, _KILLED[why])
            await self._keep_evidence(rank)
        elif self._workers.is_unreached(rank):
            self._record(NodeUnreachable(rank, reason))
            await self._keep_evidence(rank)
        else:
            self._record(NodeLost(rank, reason, symptom=f"was lost: {reason}"))
            await asyncio.gather(self._keep_evidence(rank), self._workers.dismiss(rank))
        self._record(NodeGone(rank, reason))

    def _record_killed_agent(self, rank: int, text: str) -> None:
        """Record that the job has failed on a node that lives: gpuctl's agent there was killed."""
        facts = (NodeFact("agent", text),)
        self.receive(rank, NodeExamined(rank, AGENT_KILLED, is_own_end=True, facts=facts))
        self._record_exit(NodeExited(rank, AGENT_KILLED, signal=int(signal.SIGKILL)))

    def _greet(self, rank: int) -> list[Message]:
        """Return the first messages to a worker that runs already; it ignores repeated orders."""
        node = self._run.attempt.nodes[rank]
        greeting: Message = {"do": "attach", "heartbeats": to_json(self._heartbeat_address(rank))}
        greetings = [greeting, *self._notice_orders()]
        if node.stop_asked:
            return [*greetings, {"do": "stop"}]
        return [*greetings, {"do": "start"}] if node.phase == "started" else greetings

    def _order(self, rank: int) -> Message:
        state = self._run.attempt
        order = work_order(
            self._plan,
            rank,
            self._secrets,
            is_waited_for=state.startup_order != "any" and rank in state.first_wave,
            restarts=self._run.number - 1,
            heartbeats=self._heartbeat_address(rank),
            times=self._times,
        )
        message: Message = to_json(order)
        return message

    def _heartbeat_address(self, rank: int) -> HeartbeatAddress:
        """Return where the node's worker sends its heartbeats."""
        is_here = rank == self._plan.head_rank
        address = LOOPBACK if is_here else self._launcher.address  # loopback works without network
        return self._heartbeats.address_at(address)

    def receive(self, rank: int, event: Event) -> None:
        """Handle a worker's event: write it to the journal if it belongs there, and act on it."""
        if isinstance(event, Sample):
            self._samples.add(rank, event)
        elif isinstance(event, RanksExamined):
            if self._hang is not None:
                self._hang.add(rank, event)
        elif isinstance(event, HeadSilent):
            self._lose_node(rank, event.reason)
        elif isinstance(event, ClockSet):
            text = step_text(self._plan.nodes[rank].name, event.seconds)
            self._record(change(event, rank=rank, text=text))
        elif isinstance(event, NoticeGiven):
            self._record(change(event, rank=rank))
        elif isinstance(event, MalformedEvent):
            self._report_malformed(rank, event)
        elif isinstance(event, NodeEvent):
            # A job may be root on its node, and must not speak for another one.
            self._receive(event if event.rank == rank else change(event, rank=rank))

    def _report_malformed(self, rank: int, event: MalformedEvent) -> None:
        """Record a warning about an event that is left out, once for each node and kind."""
        if (rank, event.of_kind) in self._run.malformed:
            return
        name = self._plan.nodes[rank].name
        text = f"{name} sent a malformed event `{event.of_kind}`, which is left out: {event.why}"
        self._record(OutputJudged(rank, "warning", text, malformed=event.of_kind))

    def _receive(self, event: NodeEvent) -> None:
        """Record an event of a node, and what follows from it."""
        if isinstance(event, (Output, NodeStarted)):
            self._limits.hear()
        if isinstance(event, NodePrepared):
            for order in self._notice_orders():
                self._workers.send(event.rank, order)
        if isinstance(event, NodeExited):
            self._record_exit(event)
        else:
            for recorded in self._output.read(event):
                self._record(recorded)

    def _record_exit(self, event: NodeExited) -> None:
        """Record the end of a job: as stopped if the run stopped it, else as exited."""
        rank = event.rank
        node = self._run.attempt.nodes[rank]
        if node.is_settled:  # lost, but its worker answers again
            return
        if node.stop_asked:
            self._record(
                NodeStopped(
                    rank,
                    time=event.time,
                    exit_code=event.exit_code,
                    signal=event.signal,
                    sequence=event.sequence,
                )
            )
        else:
            self._record(event)
