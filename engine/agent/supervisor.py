"""Runs one run from the head node; no client needs to be there.

It launches a worker per node, feeds what happens to `states.decide`, does what that says, and
writes everything down in the journal.
"""

from __future__ import annotations

import asyncio
import functools
import secrets as random
import traceback
from dataclasses import replace
from typing import Any

from engine.agent import evidence, heartbeat
from engine.agent.heartbeat import HeartbeatServer, time_of_day
from engine.agent.journal import Journal, Message
from engine.agent.judge import Heard, Judge
from engine.agent.launcher import STOP_GRACE_S, Launcher
from engine.agent.nodes import Node, Nodes
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
ACKNOWLEDGE_S = 60  # for a client that destroys the cluster
LEASE_S = 180  # for its next sign that it is still at it
# TERM and its grace in the worker, the unit's own after that, and the way there and back.
STOP_BOUND_S = 2 * STOP_GRACE_S + 10


class Supervisor:
    """One run. `plan` is a LaunchPlan as JSON data, `secrets` are the values by their names."""

    def __init__(
        self, plan: Message, secrets: dict[str, str], journal: Journal, launcher: Launcher
    ) -> None:
        self._plan, self._secrets = plan, secrets
        self._journal, self._launcher = journal, launcher
        nodes = tuple(Node(n["name"], n["role"], n["processes"]) for n in plan["nodes"])
        self._state = State(plan["startup_order"], plan["stop_criteria"], Nodes.of(nodes))
        self._judge = Judge(plan)
        self._workers = Workers(
            launcher, self._order, self._take, lambda: bool(self._state.verdict)
        )
        self._hears = True  # the heartbeats' process lives
        self._told: set[int] = set()  # ranks whose end is in the journal
        self._looked_into: set[int] = set()  # lost ranks of which evidence is kept
        self._letting_go: set[asyncio.Task[None]] = set()
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._power_off_at = 0.0

    def stop(self, reason: str = "stopped on request") -> None:
        """The run ends soon, gracefully, as `stopped`."""
        self._inbox.put_nowait(StopAsked(reason))

    def end(self) -> None:
        """The run ends now: this machine, or this unit, is told to end."""
        self._inbox.put_nowait(HeadEnding())

    def acknowledge(self) -> None:
        """Wait LEASE_S with the power-off from now: a client destroys the cluster itself."""
        self._power_off_at = asyncio.get_running_loop().time() + LEASE_S

    async def run(self) -> Verdict:
        """The run is over, its end is in the journal, and no node holds a process of it."""
        self._journal.append("run_started", **self._description())
        loop = asyncio.get_running_loop()
        if self._plan["max_duration_s"]:
            over = DurationOver(self._plan["max_duration_s"])
            loop.call_later(over.seconds, self._inbox.put_nowait, over)
        self._heartbeats = HeartbeatServer(random.token_bytes(32), len(self._state.nodes))
        loop.add_reader(self._heartbeats, self._hear_heartbeats)
        life = loop.create_task(self._keep_heartbeats())
        life.add_done_callback(_crash)
        nodes = [loop.create_task(self._attend(rank)) for rank in range(len(self._state.nodes))]
        for rank, node in enumerate(nodes):
            node.add_done_callback(functools.partial(self._attended, rank))
        try:
            verdict = self._whole(await self._until_finished())
        finally:
            loop.remove_reader(self._heartbeats)
            tasks = [life, *nodes, *self._letting_go]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # `_crash` has logged each
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

    def _whole(self, verdict: Verdict) -> Verdict:
        """The verdict, which a run whose output was not all kept does not pass as `done`."""
        if not self._journal.dropped:
            return verdict
        name, why = self._state.nodes[0].name, self._journal.complaint
        lost = f"{name}'s disk is full ({why}): {self._journal.dropped} events are not kept"
        if verdict.status == "done":
            return Verdict("failed", NODE_FAILED, 0, lost)
        return replace(verdict, reason=f"{verdict.reason}; {lost}")

    def _attended(self, rank: int, task: asyncio.Task[None]) -> None:
        """End the run, as a lost node does, where a flaw of ours ended the attendance."""
        error = _crash(task)
        if error is not None:
            self._lose(rank, f"was lost: gpuctl failed ({type(error).__name__}: {error})")

    async def power_off_unattended(self) -> None:
        """Power the nodes off, if the run says `destroy` and no client is destroying them."""
        if self._plan["on_stop"] != "destroy":
            return
        loop = asyncio.get_running_loop()
        self._power_off_at = max(self._power_off_at, loop.time() + ACKNOWLEDGE_S)
        while (left := self._power_off_at - loop.time()) > 0:  # noqa: ASYNC110  it moves
            await asyncio.sleep(left)
        self._journal.append("powering_off")
        await self._launcher.power_off()

    def _description(self) -> dict[str, Any]:
        """What a reader of the journal needs to know of the plan; no environment, no script."""
        fields = ("run_id", "name", "cluster", "startup_order", "stop_criteria", "on_stop")
        programs = self._plan.get("programs", ())
        nodes = [
            {key: node[key] for key in ("rank", "name", "private_ip", "role")}
            for node in self._plan["nodes"]
        ]
        return {**{key: self._plan[key] for key in fields}, "programs": programs, "nodes": nodes}

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
        """The verdict, with what output shows against the run."""
        heard, verdict = self._judge.end(verdict)
        self._tell(heard)
        return verdict

    def _tell(self, heard: list[Heard]) -> None:
        """What output showed is in the journal, and ends the run if it must."""
        for kind, finding, ends_run in heard:
            rank, text = finding.rank, finding.text
            self._journal.append(kind, rank=rank, level=finding.level, text=text)
            if ends_run:
                self._inbox.put_nowait(NetworkFault(rank, text))

    def _act(self, action: Action) -> None:
        if isinstance(action, Start):
            self._workers.send(action.rank, {"do": "start"})
        elif isinstance(action, Stop):
            self._workers.send(action.rank, {"do": "stop"})

    def _abandon(self) -> None:
        """Nodes that did not stop in time are given up, so that the run ends all the same."""
        for rank, node in enumerate(self._state.nodes):
            if node.phase != "gone":
                self._lose(rank, f"did not stop within {STOP_BOUND_S} s")

    async def _keep_heartbeats(self) -> None:
        """Show that the supervisor lives, and hear reports, also after their process was killed."""
        loop = asyncio.get_running_loop()
        while True:
            self._heartbeats.show_life()
            if not self._hears:
                self._hears = True
                self._heartbeats.start_again()
                loop.add_reader(self._heartbeats, self._hear_heartbeats)
            await asyncio.sleep(heartbeat.BEAT_S)

    def _hear_heartbeats(self) -> None:
        """A node has fallen silent, or was silent and answers again."""
        report = self._heartbeats.report()
        if not report:  # its process was killed, by a kernel short of memory perhaps
            asyncio.get_running_loop().remove_reader(self._heartbeats)
            self._hears = False
            return
        rank = report["rank"]
        if rank in self._told or self._state.nodes[rank].phase in ("exited", "gone"):
            return
        if "silence_s" in report:
            self._journal.append("node_answers_again", **report)
        else:
            last = time_of_day(report["last_heard"])
            silence = f"{heartbeat.SILENCE_S:g} s"
            self._lose(rank, f"has not answered for {silence} (last heard {last})")

    def _lose(self, rank: int, reason: str) -> None:
        """The run goes on without the node, which is let go when the evidence is kept."""
        self._told.add(rank)
        self._journal.append("node_lost", rank=rank, reason=reason)
        self._inbox.put_nowait(Lost(rank, reason))

        async def let_go() -> None:
            try:
                await self._keep_evidence(rank)
            finally:
                self._workers.give_up(rank, reason)
                self._inbox.put_nowait(Gone(rank, reason))

        task = asyncio.get_running_loop().create_task(let_go())
        task.add_done_callback(_crash)
        self._letting_go.add(task)

    async def _keep_evidence(self, rank: int) -> None:
        """What this machine sees of a lost node is in the run's folder, and in the journal."""
        if rank in self._looked_into or len(self._looked_into) >= evidence.NODES:
            return
        self._looked_into.add(rank)
        node = self._plan["nodes"][rank]
        texts = await evidence.collect(node["private_ip"])
        texts["heartbeats"] = self._heartbeats.describe(rank) + "\n"
        texts["ssh"] = self._workers.complaints(rank)
        for source, seen in sorted(texts.items()):
            redaction = Redaction(list(self._secrets.values()))  # `ps` shows arguments of the job
            text = redaction.feed(seen) + redaction.rest()
            evidence.write(self._journal.folder, node["name"], source, text)
            self._journal.append("evidence", rank=rank, node=node["name"], source=source, text=text)

    async def _attend(self, rank: int) -> None:
        """One node from launch to its end, as events in the inbox and the journal."""
        try:
            reason = await self._workers.attend(rank)
        except OSError as error:  # no ssh, no systemd-run
            reason = f"its worker cannot be launched: {error}"
        if rank in self._told:
            pass  # told already
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
            self._told.add(rank)
            self._inbox.put_nowait(Lost(rank, f"was lost: {reason}"))
            await self._keep_evidence(rank)
        self._inbox.put_nowait(Gone(rank, reason))

    def _order(self, rank: int) -> Message:
        from engine.agent.interruption import METADATA  # late, as HTTP takes long to import

        node = self._plan["nodes"][rank]
        head = LOOPBACK if rank == 0 else self._launcher.address  # loopback needs no network
        waited_for = self._plan["startup_order"] != "any" and rank in self._state.first_wave
        return {
            "node": node,
            "nodes": [
                {key: node[key] for key in ("rank", "name", "private_ip")}
                for node in self._plan["nodes"]
            ],
            "image": self._plan["image"],
            "secrets": {name: self._secrets[of] for name, of in node["secrets"].items()},
            "hidden": list(self._secrets.values()),
            "ready": self._plan["ready"] if waited_for else None,
            "grace_s": STOP_GRACE_S,
            "heartbeats": self._heartbeats.address_at(head),
            "metadata": METADATA if self._plan["is_spot"] else None,
        }

    def _take(self, rank: int, event: Message) -> None:
        """A worker's event is in the journal, if it belongs there, and counts for the run."""
        kind = event.pop("kind")
        fields = {**event, "rank": rank}
        if kind == "prepared":
            self._inbox.put_nowait(Prepared(rank))
        elif kind == "not_prepared":
            self._inbox.put_nowait(NotPrepared(rank, event["reason"]))
        elif kind == "head_silent":
            self._lose(rank, event["reason"])
        elif kind == "not_ready":
            self._inbox.put_nowait(NotReady(rank, event["reason"]))
        elif kind == "node_exited":
            self._exited(rank, fields)
        else:
            self._journal.append(kind, **fields)
            self._hear(kind, fields)

    def _hear(self, kind: str, fields: Message) -> None:
        """What the journal has got of a node counts for the run."""
        rank: int = fields["rank"]
        if kind == "output":
            self._tell(self._judge.hear(fields))
        elif kind == "table_written":
            self._tell(self._judge.read_json(rank, fields["document"]))
        elif kind == "node_ready":
            self._inbox.put_nowait(Ready(rank))
        elif kind == "rank_started":
            self._inbox.put_nowait(RankStarted(rank, fields["process"], fields["size"]))
        elif kind == "node_interrupted":
            self._inbox.put_nowait(Interrupted(rank, fields["action"], fields["at"]))

    def _exited(self, rank: int, fields: Message) -> None:
        """A job that ended because we told it to is stopped, whatever it says about it."""
        if rank in self._told:
            pass  # lost, and heard once more
        elif self._state.nodes[rank].stop_asked:
            self._journal.append("node_stopped", rank=rank)
        else:
            self._journal.append("node_exited", **fields)
        self._told.add(rank)
        self._inbox.put_nowait(Exited(rank, fields["exit_code"]))


def _crash(task: asyncio.Task[None]) -> BaseException | None:
    """Return the flaw of ours that ended the task, if one did; it is in the unit's log."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        traceback.print_exception(type(error), error, error.__traceback__)
    return error
