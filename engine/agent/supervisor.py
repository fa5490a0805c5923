"""The supervisor of one run, on the head node; it needs no client.

It launches a worker per node, passes events to `states.decide`, executes the actions that it
returns, and writes all events to the journal.
"""

from __future__ import annotations

import asyncio
import functools
import secrets as random
import traceback
from dataclasses import replace
from typing import Any

from engine.agent import evidence, heartbeat
from engine.agent.case_progress import CaseProgress
from engine.agent.heartbeat import HeartbeatServer, time_of_day
from engine.agent.journal import Journal, Message
from engine.agent.judge import Heard, Judge
from engine.agent.launcher import STOP_GRACE_S, Launcher
from engine.agent.nodes import Nodes, NodeState
from engine.agent.redaction import Redaction
from engine.agent.states import (
    NODE_FAILED,
    Action,
    DurationOver,
    Event,
    Exited,
    Finish,
    Gone,
    HeadEnding,
    Interrupted,
    Lost,
    NetworkFault,
    NotPrepared,
    NotReady,
    Prepared,
    RankStarted,
    Ready,
    Start,
    State,
    Stop,
    StopAsked,
    Verdict,
    decide,
)
from engine.agent.workers import Workers

LOOPBACK = "127.0.0.1"
ACKNOWLEDGE_S = 60  # time for a client to announce that it destroys the cluster
LEASE_S = 180  # time for that client's next announcement
# The worker's grace after SIGTERM, then the unit's, plus time for the messages.
STOP_BOUND_S = 2 * STOP_GRACE_S + 10


class Supervisor:
    """The supervisor of a run. `plan` is a LaunchPlan as JSON; `secrets` maps names to values."""

    def __init__(
        self, plan: Message, secrets: dict[str, str], journal: Journal, launcher: Launcher
    ) -> None:
        self._plan, self._secrets = plan, secrets
        self._journal, self._launcher = journal, launcher
        nodes = tuple(NodeState(n["name"], n["role"], n["processes"]) for n in plan["nodes"])
        self._state = State(plan["startup_order"], plan["stop_criteria"], Nodes.of(nodes))
        self._judge, self._progress = Judge(plan), CaseProgress(plan)
        self._workers = Workers(
            launcher, self._order, self._receive, lambda: bool(self._state.verdict)
        )
        self._heartbeats_run = True  # the process that answers heartbeats
        self._ended_ranks: set[int] = set()  # ranks with their end in the journal
        self._examined_ranks: set[int] = set()  # lost ranks with evidence
        self._releases: set[asyncio.Task[None]] = set()
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._power_off_at = 0.0

    def stop(self, reason: str = "stopped on request") -> None:
        """Stop the run gracefully; it ends as `stopped`."""
        self._inbox.put_nowait(StopAsked(reason))

    def end(self) -> None:
        """Stop the run because this unit got SIGTERM, as in a shutdown of the machine."""
        self._inbox.put_nowait(HeadEnding())

    def acknowledge(self) -> None:
        """Postpone the power-off to LEASE_S from now: a client destroys the cluster itself."""
        self._power_off_at = asyncio.get_running_loop().time() + LEASE_S

    async def run(self) -> Verdict:
        """Run to the end, with no process left on any node; return the verdict."""
        self._journal.append("run_started", **self._description())
        loop = asyncio.get_running_loop()
        if self._plan["max_duration_s"]:
            over = DurationOver(self._plan["max_duration_s"])
            loop.call_later(over.seconds, self._inbox.put_nowait, over)
        self._heartbeats = HeartbeatServer(random.token_bytes(32), len(self._state.nodes))
        loop.add_reader(self._heartbeats, self._hear_heartbeats)
        life = loop.create_task(self._keep_heartbeats())
        life.add_done_callback(_log_crash)
        nodes = [loop.create_task(self._attend(rank)) for rank in range(len(self._state.nodes))]
        for rank, node in enumerate(nodes):
            node.add_done_callback(functools.partial(self._finish_attending, rank))
        try:
            verdict = self._check_journal(await self._until_finished())
        finally:
            loop.remove_reader(self._heartbeats)
            tasks = [life, *nodes, *self._releases]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # `_log_crash` has logged each
            await self._workers.close()
            self._heartbeats.close()
        self._journal.append(
            "run_finished",
            status=verdict.status,
            exit_code=verdict.exit_code,
            first_failed_rank=verdict.first_failed_rank,
            reason=verdict.reason,
        )
        return verdict

    def _check_journal(self, verdict: Verdict) -> Verdict:
        """Return the verdict; a run with events that were not stored fails instead of `done`."""
        if not self._journal.dropped:
            return verdict
        name, why = self._state.nodes[0].name, self._journal.write_error
        lost = f"{name}'s disk is full ({why}): {self._journal.dropped} events were not stored"
        if verdict.status == "done":
            return Verdict("failed", NODE_FAILED, 0, lost)
        return replace(verdict, reason=f"{verdict.reason}; {lost}")

    def _finish_attending(self, rank: int, task: asyncio.Task[None]) -> None:
        """If an error in gpuctl ended the task of this node, treat the node as lost."""
        error = _log_crash(task)
        if error is not None:
            self._lose_node(rank, f"was lost: gpuctl failed ({type(error).__name__}: {error})")

    async def power_off_unattended(self) -> None:
        """Power the nodes off if `on_stop` is `destroy` and no client destroys them."""
        if self._plan["on_stop"] != "destroy":
            return
        loop = asyncio.get_running_loop()
        self._power_off_at = max(self._power_off_at, loop.time() + ACKNOWLEDGE_S)
        while (left := self._power_off_at - loop.time()) > 0:  # noqa: ASYNC110  `acknowledge` moves it
            await asyncio.sleep(left)
        self._journal.append("powering_off")
        await self._launcher.power_off()

    def _description(self) -> dict[str, Any]:
        """Return the plan's fields for readers of the journal, without environment and scripts."""
        fields = ("run_id", "name", "cluster", "startup_order", "stop_criteria", "on_stop")
        more = {"programs": self._plan.get("programs", ()), "sweep": self._plan.get("sweep")}
        nodes = [
            {key: node[key] for key in ("rank", "name", "private_ip", "role")}
            for node in self._plan["nodes"]
        ]
        return {**{key: self._plan[key] for key in fields}, **more, "nodes": nodes}

    async def _until_finished(self) -> Verdict:
        loop = asyncio.get_running_loop()
        bounded = False
        while True:
            self._state, actions = decide(self._state, await self._inbox.get())
            for action in actions:
                self._act(action)
            if self._state.verdict and not bounded:
                bounded = True
                loop.call_later(STOP_BOUND_S, self._abandon)
            if Finish() in actions:
                assert self._state.verdict is not None
                return self._confirm(self._state.verdict)

    def _confirm(self, verdict: Verdict) -> Verdict:
        """Return the verdict, changed by what the run's output shows at its end."""
        heard, verdict = self._judge.end(verdict)
        self._record_findings(heard)
        return verdict

    def _record_findings(self, heard: list[Heard]) -> None:
        """Write the findings to the journal; end the run if one of them requires it."""
        for one in heard:
            self._journal.append(one.kind, **one.finding._asdict(), **one.details)
            if one.ends_run:
                self._inbox.put_nowait(NetworkFault(one.finding.rank, one.finding.text))

    def _act(self, action: Action) -> None:
        if isinstance(action, Start):
            self._workers.send(action.rank, {"do": "start"})
        elif isinstance(action, Stop):
            self._workers.send(action.rank, {"do": "stop"})

    def _abandon(self) -> None:
        """Give up the nodes that did not stop in time, so that the run can end."""
        for rank, node in enumerate(self._state.nodes):
            if node.phase != "gone":
                self._lose_node(rank, f"did not stop within {STOP_BOUND_S} s")

    async def _keep_heartbeats(self) -> None:
        """Renew the supervisor's sign of life; restart the heartbeats' process if it was killed."""
        loop = asyncio.get_running_loop()
        while True:
            self._heartbeats.signal_alive()
            if not self._heartbeats_run:
                self._heartbeats_run = True
                self._heartbeats.restart()
                loop.add_reader(self._heartbeats, self._hear_heartbeats)
            await asyncio.sleep(heartbeat.BEAT_S)

    def _hear_heartbeats(self) -> None:
        """Read one report: a node has become silent, or answers again."""
        report = self._heartbeats.report()
        if not report:  # its process was killed, perhaps because memory was short
            asyncio.get_running_loop().remove_reader(self._heartbeats)
            self._heartbeats_run = False
            return
        rank = report["rank"]
        if rank in self._ended_ranks or self._state.nodes[rank].phase in ("exited", "gone"):
            return
        if "silence_s" in report:
            self._journal.append("node_answers_again", **report)
        else:
            last = time_of_day(report["last_heard"])
            silence = f"{heartbeat.SILENCE_S:g} s"
            self._lose_node(rank, f"has not answered for {silence} (last heard {last})")

    def _lose_node(self, rank: int, reason: str) -> None:
        """Report the node as lost; collect evidence, then give its worker up."""
        self._ended_ranks.add(rank)
        self._journal.append("node_lost", rank=rank, reason=reason)
        self._inbox.put_nowait(Lost(rank, reason))

        async def release_node() -> None:
            try:
                await self._keep_evidence(rank)
            finally:
                self._workers.give_up(rank, reason)
                self._inbox.put_nowait(Gone(rank, reason))

        task = asyncio.get_running_loop().create_task(release_node())
        task.add_done_callback(_log_crash)
        self._releases.add(task)

    async def _keep_evidence(self, rank: int) -> None:
        """Write the evidence about a lost node to the run's folder and to the journal."""
        if rank in self._examined_ranks or len(self._examined_ranks) >= evidence.NODES:
            return
        self._examined_ranks.add(rank)
        node = self._plan["nodes"][rank]
        texts = await evidence.collect(node["private_ip"])
        texts["heartbeats"] = self._heartbeats.describe(rank) + "\n"
        texts["ssh"] = self._workers.stderr_text(rank)
        for source, seen in sorted(texts.items()):
            redaction = Redaction(
                list(self._secrets.values())
            )  # `ps` prints the arguments of the job's processes
            text = redaction.feed(seen) + redaction.rest()
            evidence.write(self._journal.folder, node["name"], source, text)
            self._journal.append("evidence", rank=rank, node=node["name"], source=source, text=text)

    async def _attend(self, rank: int) -> None:
        """Launch the node's worker, follow it to its end, and record how it ended."""
        try:
            reason = await self._workers.attend(rank)
        except OSError as error:  # no ssh, no systemd-run
            reason = f"its worker cannot be launched: {error}"
        if rank in self._ended_ranks:
            pass  # recorded already
        elif self._state.verdict:
            idle = self._state.nodes[rank].phase in ("launching", "prepared")
            reason = "never started" if idle else reason
            self._journal.append("node_stopped", rank=rank, reason=reason)
        elif self._workers.is_unreached(rank):
            self._journal.append("node_unreachable", rank=rank, reason=reason)
            self._inbox.put_nowait(Lost(rank, f"cannot be reached: {reason}"))
            await self._keep_evidence(rank)
        else:
            self._journal.append("node_lost", rank=rank, reason=reason)
            self._ended_ranks.add(rank)
            self._inbox.put_nowait(Lost(rank, f"was lost: {reason}"))
            await self._keep_evidence(rank)
        self._inbox.put_nowait(Gone(rank, reason))

    def _order(self, rank: int) -> Message:
        from engine.agent.interruption import METADATA  # here, because importing HTTP is slow

        node = self._plan["nodes"][rank]
        head = LOOPBACK if rank == 0 else self._launcher.address  # loopback works without network
        waited_for = self._plan["startup_order"] != "any" and rank in self._state.first_wave
        return {
            "node": node,
            "nodes": [
                {key: node[key] for key in ("rank", "name", "private_ip")}
                for node in self._plan["nodes"]
            ],
            "image": self._plan["image"],
            "code": self._plan["code"],
            "secrets": {name: self._secrets[of] for name, of in node["secrets"].items()},
            "hidden": list(self._secrets.values()),
            "ready": self._plan["ready"] if waited_for else None,
            "grace_s": STOP_GRACE_S,
            "heartbeats": self._heartbeats.address_at(head),
            "metadata": METADATA if self._plan["is_spot"] else None,
        }

    def _receive(self, rank: int, event: Message) -> None:
        """Handle a worker's event: write it to the journal if it belongs there, and act on it."""
        kind = event.pop("kind")
        fields = {**event, "rank": rank}
        if kind == "prepared":
            self._inbox.put_nowait(Prepared(rank))
        elif kind == "not_prepared":
            self._inbox.put_nowait(NotPrepared(rank, event["reason"]))
        elif kind == "head_silent":
            self._lose_node(rank, event["reason"])
        elif kind == "not_ready":
            self._inbox.put_nowait(NotReady(rank, event["reason"]))
        elif kind == "node_exited":
            self._record_exit(rank, fields)
        else:
            self._journal.append(kind, **fields)
            self._apply(kind, fields)

    def _apply(self, kind: str, fields: Message) -> None:
        """Act on an event that the journal has."""
        rank: int = fields["rank"]
        if kind == "output":
            case = self._progress.hear(fields)
            if case is not None:
                self._journal.append("case_started", **case)
            self._record_findings(self._judge.hear(fields))
        elif kind == "table_written":
            self._record_findings(self._judge.read_json(rank, fields["document"], fields["case"]))
        elif kind == "node_ready":
            self._inbox.put_nowait(Ready(rank))
        elif kind == "rank_started":
            self._inbox.put_nowait(RankStarted(rank, fields["process"], fields["size"]))
        elif kind == "node_interrupted":
            self._inbox.put_nowait(Interrupted(rank, fields["action"], fields["at"]))

    def _record_exit(self, rank: int, fields: Message) -> None:
        """Record the end of a job: as stopped if the run stopped it, else as exited."""
        if rank in self._ended_ranks:
            pass  # lost, but its worker answers again
        elif self._state.nodes[rank].stop_asked:
            self._journal.append("node_stopped", rank=rank)
        else:
            self._journal.append("node_exited", **fields)
        self._ended_ranks.add(rank)
        self._inbox.put_nowait(Exited(rank, fields["exit_code"]))


def _log_crash(task: asyncio.Task[None]) -> BaseException | None:
    """Return the unexpected error that ended the task, if any, and print it to the unit's log."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        traceback.print_exception(type(error), error, error.__traceback__)
    return error
