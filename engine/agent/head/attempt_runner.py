"""One attempt of a run, for its supervisor: from the launch of the workers to the end on all nodes.

It passes events to `decisions.decide` and executes the actions that it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets as random
import signal
import traceback

from engine.agent.head.decisions import DECISIVE, decide
from engine.agent.head.limits import Limits
from engine.agent.head.resuming import Recorded
from engine.agent.head.states import Action, Finish, Start, Stop
from engine.agent.head.work_order import work_order
from engine.agent.journal.clock import StepWatch, step_text, time_of_day
from engine.agent.journal.journal import Journal, Message
from engine.agent.judge.output_reader import OutputReader
from engine.agent.link import heartbeat
from engine.agent.link.heartbeat import HeartbeatServer
from engine.agent.link.launcher import STOP_GRACE_S, Launcher
from engine.agent.link.worker_link import MalformedEvent
from engine.agent.link.workers import Workers
from engine.agent.metrics.samples import Samples
from engine.agent.node import evidence, supervisor_link
from engine.contract.codec import to_json
from engine.contract.events import (
    ClockSet,
    Event,
    HeadSilent,
    NodeAnswersAgain,
    NodeEvent,
    NodeExamined,
    NodeExited,
    NodeFact,
    NodeGone,
    NodeLost,
    NodeStarted,
    NodeStopped,
    NodeUnreachable,
    Output,
    OutputJudged,
    Sample,
    change,
)
from engine.contract.orders import HeartbeatAddress
from engine.contract.verdict import Verdict

LOOPBACK = "127.0.0.1"
# The worker's grace after SIGTERM, then the unit's, plus time for the messages.
STOP_BOUND_S = 2 * STOP_GRACE_S + 10
AGENT_KILLED = 128 + signal.SIGKILL
_KILLED = {
    supervisor_link.KILLED: "the job killed gpuctl's agent, for example with pkill, killall or"
    " kill -1; the node lives",
    supervisor_link.OUT_OF_MEMORY: "the kernel killed gpuctl's agent because memory was short;"
    " the node lives",
}
"""Why a job has failed on a node without a worker, by the reason that the node gives."""


class Recorder:
    """The journal of a run, the inbox of the events that decide something, and its samples."""

    samples: Samples

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.inbox: asyncio.Queue[Event] = asyncio.Queue()

    def record(self, event: Event) -> None:
        """Write the event to the journal, then pass it on, if something may follow from it."""
        event = self.journal.append(event)
        if isinstance(event, DECISIVE):
            self.inbox.put_nowait(event)


class RunningAttempt:
    """An attempt. `recorded` is what the journal has of it, `output` the reader of its output.

    `restarts` is the number of attempts before it. `state` is its present state, and `lost_ranks`
    are the nodes that it has lost.
    """

    def __init__(
        self,
        recorded: Recorded,
        output: OutputReader,
        recorder: Recorder,
        launcher: Launcher,
        secrets: dict[str, str],
        restarts: int,
    ) -> None:
        self.plan = plan = recorded.plan
        self._recorded, self.output = recorded, output
        self._recorder, self._journal, self._inbox = recorder, recorder.journal, recorder.inbox
        self._launcher, self._secrets, self._restarts = launcher, secrets, restarts
        self.state = recorded.state
        self._limits = Limits(plan, self._record)
        self._workers = Workers(
            *(launcher, self._order, self._greet, self.receive),
            lambda: bool(self.state.verdict),
        )
        self._workers.received = recorded.received
        self._heartbeats_run = True  # the process that answers heartbeats
        self._ended_ranks = recorded.ended  # ranks with their end in the journal
        self.lost_ranks = set(recorded.lost)
        self._examined_ranks = recorded.examined  # lost ranks with evidence
        self._malformed = recorded.malformed  # ranks and kinds that the journal warns of
        self._releases: set[asyncio.Task[None]] = set()
        self._bound: asyncio.TimerHandle | None = None

    def _record(self, event: Event) -> None:
        if isinstance(event, (NodeLost, NodeUnreachable)):
            self.lost_ranks.add(event.rank)
        self._recorder.record(event)

    async def execute(self) -> Verdict:
        """Make the attempt, to its end on all nodes; return its verdict."""
        self._recorder.samples.begin(self.plan, self._journal.clock)
        loop = asyncio.get_running_loop()
        self._heartbeats = HeartbeatServer(random.token_bytes(32), len(self.state.nodes))
        loop.add_reader(self._heartbeats, self._hear_heartbeats)
        life = loop.create_task(self._keep_heartbeats())
        life.add_done_callback(_log_crash)
        nodes = [loop.create_task(self._attend(rank)) for rank in range(len(self.state.nodes))]
        for rank, node in enumerate(nodes):
            node.add_done_callback(functools.partial(self._finish_attending, rank))
        began = self._recorded.attempt_began
        passed = None if began is None else self._journal.clock.now() - began
        self._limits.begin(passed, self.state.nodes)
        try:
            return await self._until_finished()
        finally:
            self._limits.end()
            if self._bound is not None:
                self._bound.cancel()
            loop.remove_reader(self._heartbeats)
            tasks = [life, *nodes, *self._releases]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # `_log_crash` has logged each
            await self._workers.close()
            self._heartbeats.close()

    def _finish_attending(self, rank: int, task: asyncio.Task[None]) -> None:
        """If an error in gpuctl ended the task of this node, treat the node as lost."""
        error = _log_crash(task)
        if error is not None:
            self._lose_node(rank, f"was lost: gpuctl failed ({type(error).__name__}: {error})")

    async def _until_finished(self) -> Verdict:
        is_over = False
        if self.state.nodes.count("gone") == len(self.state.nodes):
            is_over = True  # only the end is not in the journal
        while not is_over:
            if self.state.verdict and self._bound is None:
                loop = asyncio.get_running_loop()
                self._bound = loop.call_later(STOP_BOUND_S, self._abandon)
            self.state, actions = decide(self.state, await self._inbox.get())
            for action in actions:
                self._act(action)
            is_over = Finish() in actions
        assert self.state.verdict is not None
        return self._confirm(self.state.verdict)

    def _confirm(self, verdict: Verdict) -> Verdict:
        """Return the verdict, changed by what the run's output shows at its end."""
        events, verdict = self.output.end(verdict)
        for event in events:
            self._record(event)
        return verdict

    def _act(self, action: Action) -> None:
        if isinstance(action, Start):
            self._workers.send(action.rank, {"do": "start"})
        elif isinstance(action, Stop):
            self._workers.send(action.rank, {"do": "stop"})

    def _abandon(self) -> None:
        """Give up the nodes that did not stop in time, so that the run can end."""
        for rank, node in enumerate(self.state.nodes):
            if node.phase != "gone":
                self._lose_node(rank, f"did not stop within {STOP_BOUND_S} s")

    async def _keep_heartbeats(self) -> None:
        """Renew the supervisor's sign of life; restart the heartbeats' process if it was killed."""
        loop = asyncio.get_running_loop()
        clock, is_node = StepWatch(), self.plan.head_rank is not None
        while True:
            self._heartbeats.signal_alive()
            step = clock.look()
            if step and not is_node:  # else its worker reports it
                self._record(ClockSet(None, step, step_text(self.plan.head, step)))
            if not self._heartbeats_run:
                with contextlib.suppress(OSError):  # memory is short: the next try is after a beat
                    self._heartbeats.restart()
                    loop.add_reader(self._heartbeats, self._hear_heartbeats)
                    self._heartbeats_run = True
            await asyncio.sleep(heartbeat.BEAT_S)

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
        if rank in self._ended_ranks or self.state.nodes[rank].phase in ("exited", "gone"):
            return
        if "silence_s" in report:
            self._journal.append(NodeAnswersAgain(rank, report["silence_s"]))
        else:
            last = time_of_day(report["last_heard"])
            silence = f"{heartbeat.SILENCE_S:g} s"
            self._lose_node(rank, f"has not answered for {silence} (last heard {last})")

    def _lose_node(self, rank: int, reason: str) -> None:
        """Report the node as lost; collect evidence, then give its worker up."""
        self._ended_ranks.add(rank)
        self._record(NodeLost(rank, reason))
        self._release_node(rank, reason)

    def _release_node(self, rank: int, reason: str) -> None:
        async def release_node() -> None:
            try:
                await self._keep_evidence(rank)
            finally:
                self._workers.give_up(rank, reason)
                self._record(NodeGone(rank, reason))

        task = asyncio.get_running_loop().create_task(release_node())
        task.add_done_callback(_log_crash)
        self._releases.add(task)

    async def _keep_evidence(self, rank: int) -> None:
        """Write the evidence about a lost node to the run's folder and to the journal."""
        if rank in self._examined_ranks or len(self._examined_ranks) >= evidence.NODES:
            return
        self._examined_ranks.add(rank)
        node = self.plan.nodes[rank]
        texts = await evidence.collect(node.private_ip)
        texts["heartbeats"] = self._heartbeats.describe(rank) + "\n"
        texts["ssh"] = self._workers.stderr_text(rank)
        evidence.keep(self._journal, node, texts, list(self._secrets.values()))

    async def _attend(self, rank: int) -> None:
        """Launch the node's worker, follow it to its end, and record how it ended.

        After an earlier supervisor, connect to the worker that it launched.
        """
        phase = self.state.nodes[rank].phase
        if phase == "gone":
            return
        if rank in self._recorded.lost:
            self._release_node(rank, self._recorded.lost[rank])
            return
        try:
            if self._recorded.began is None:
                reason = await self._workers.attend(rank)
            else:
                reason = await self._workers.take_up(rank, may_launch=phase == "launching")
        except OSError as error:  # no ssh, no systemd-run
            reason = f"its worker cannot be launched: {error}"
        why = "" if rank in self._ended_ranks else await self._workers.why_gone(rank)
        is_idle = self.state.nodes[rank].phase in ("launching", "prepared")
        if rank in self._ended_ranks:
            pass  # recorded already
        elif self.state.verdict and is_idle:
            self._record(NodeStopped(rank, "never started"))
        elif why in _KILLED and not is_idle:
            self._record_killed_agent(rank, _KILLED[why])
            await self._keep_evidence(rank)
        elif self._workers.is_unreached(rank):
            self._record(NodeUnreachable(rank, reason))
            await self._keep_evidence(rank)
        else:
            self._record(NodeLost(rank, reason, symptom=f"was lost: {reason}"))
            self._ended_ranks.add(rank)
            await asyncio.gather(self._keep_evidence(rank), self._workers.dismiss(rank))
        self._record(NodeGone(rank, reason))

    def _record_killed_agent(self, rank: int, text: str) -> None:
        """Record that the job has failed on a node that lives: gpuctl's agent there was killed."""
        facts = (NodeFact("agent", text),)
        self.receive(rank, NodeExamined(rank, AGENT_KILLED, is_own_end=True, facts=facts))
        self._record_exit(NodeExited(rank, AGENT_KILLED, signal=int(signal.SIGKILL)))

    def _greet(self, rank: int) -> list[Message]:
        """Return the first messages to a worker that runs already; it ignores repeated orders."""
        node = self.state.nodes[rank]
        greeting: Message = {"do": "attach", "heartbeats": to_json(self._heartbeat_address(rank))}
        if node.stop_asked:
            return [greeting, {"do": "stop"}]
        return [greeting, {"do": "start"}] if node.phase == "started" else [greeting]

    def _order(self, rank: int) -> Message:
        order = work_order(
            self.plan,
            rank,
            self._secrets,
            is_waited_for=self.plan.startup_order != "any" and rank in self.state.first_wave,
            restarts=self._restarts,
            heartbeats=self._heartbeat_address(rank),
        )
        message: Message = to_json(order)
        return message

    def _heartbeat_address(self, rank: int) -> HeartbeatAddress:
        """Return where the node's worker sends its heartbeats."""
        is_here = rank == self.plan.head_rank
        address = LOOPBACK if is_here else self._launcher.address  # loopback works without network
        return self._heartbeats.address_at(address)

    def receive(self, rank: int, event: Event) -> None:
        """Handle a worker's event: write it to the journal if it belongs there, and act on it."""
        if isinstance(event, Sample):
            self._recorder.samples.add(rank, event)
        elif isinstance(event, HeadSilent):
            self._lose_node(rank, event.reason)
        elif isinstance(event, ClockSet):
            text = step_text(self.plan.nodes[rank].name, event.seconds)
            self._record(change(event, rank=rank, text=text))
        elif isinstance(event, MalformedEvent):
            self._report_malformed(rank, event)
        elif isinstance(event, NodeEvent):
            # A job may be root on its node, and must not speak for another one.
            self._receive(event if event.rank == rank else change(event, rank=rank))

    def _report_malformed(self, rank: int, event: MalformedEvent) -> None:
        """Record a warning about an event that is left out, once for each node and kind."""
        if (rank, event.of_kind) in self._malformed:
            return
        self._malformed.add((rank, event.of_kind))
        name = self.plan.nodes[rank].name
        text = f"{name} sent a malformed event `{event.of_kind}`, which is left out: {event.why}"
        self._record(OutputJudged(rank, "warning", text, malformed=event.of_kind))

    def _receive(self, event: NodeEvent) -> None:
        """Record an event of a node, and what follows from it."""
        if isinstance(event, (Output, NodeStarted)):
            self._limits.hear()
        if isinstance(event, NodeExited):
            self._record_exit(event)
        else:
            for recorded in self.output.read(event):
                self._record(recorded)

    def _record_exit(self, event: NodeExited) -> None:
        """Record the end of a job: as stopped if the run stopped it, else as exited."""
        rank = event.rank
        if rank in self._ended_ranks:  # lost, but its worker answers again
            return
        self._ended_ranks.add(rank)
        if self.state.nodes[rank].stop_asked:
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


def _log_crash(task: asyncio.Task[None]) -> BaseException | None:
    """Return the unexpected error that ended the task, if any, and print it to the unit's log."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        traceback.print_exception(type(error), error, error.__traceback__)
    return error
