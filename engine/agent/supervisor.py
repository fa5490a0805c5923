"""Runs one run from the head node; no client needs to be there.

It launches a worker per node, feeds what happens to `states.decide`, does what that says, and
writes everything down in the journal.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engine.agent.channel import Channel
from engine.agent.journal import Journal, Message
from engine.agent.launcher import STOP_GRACE_S, Launcher
from engine.agent.pieces import Pieces
from engine.agent.proof import Finding, Proof
from engine.agent.states import (
    WRONG_RUN,
    Action,
    DurationOver,
    Event,
    Exited,
    Finish,
    Gone,
    HeadEnding,
    Interrupted,
    NetworkFault,
    Node,
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

HEARTBEAT_S = 10
SILENCE_S = 30  # a worker that hears nothing for so long ends its job
PREPARE_S = 60
LAUNCHES_AT_ONCE = 64
ACKNOWLEDGE_S = 60
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
        self._state = State(plan["startup_order"], plan["stop_criteria"], nodes)
        self._proof, self._pieces = Proof(plan["network"], plan["nodes"]), Pieces()
        self._channels: dict[int, Channel] = {}
        self._told: set[int] = set()  # ranks whose end is in the journal
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._launches = asyncio.Semaphore(LAUNCHES_AT_ONCE)
        self._acknowledged = asyncio.Event()

    def stop(self, reason: str = "stopped on request") -> None:
        """The run ends soon, gracefully, as `stopped`."""
        self._inbox.put_nowait(StopAsked(reason))

    def end(self) -> None:
        """The run ends now: this machine, or this unit, is told to end."""
        self._inbox.put_nowait(HeadEnding())

    def acknowledge(self) -> None:
        """A client is there that destroys the cluster itself."""
        self._acknowledged.set()

    async def run(self) -> Verdict:
        """The run is over, its end is in the journal, and no node holds a process of it."""
        self._journal.append("run_started", **self._description())
        loop = asyncio.get_running_loop()
        if self._plan["max_duration_s"]:
            over = DurationOver(self._plan["max_duration_s"])
            loop.call_later(over.seconds, self._inbox.put_nowait, over)
        nodes = [loop.create_task(self._attend(rank)) for rank in range(len(self._state.nodes))]
        heart = loop.create_task(self._beat())
        verdict = await self._until_finished()
        heart.cancel()
        for task in nodes:
            task.cancel()
        await asyncio.gather(heart, *nodes, return_exceptions=True)
        self._journal.append(
            "run_finished",
            status=verdict.status,
            exit_code=verdict.exit_code,
            first_failed_rank=verdict.first_failed_rank,
            reason=verdict.reason,
        )
        return verdict

    async def power_off_unattended(self) -> None:
        """Where the run says `destroy` and no client takes that over, the nodes power off."""
        if self._plan["on_stop"] != "destroy":
            return
        acknowledged = asyncio.ensure_future(self._acknowledged.wait())
        await asyncio.wait([acknowledged], timeout=ACKNOWLEDGE_S)
        if not acknowledged.done():
            acknowledged.cancel()
            self._journal.append("powering_off")
            await self._launcher.power_off()

    def _description(self) -> dict[str, Any]:
        """What a reader of the journal needs to know of the plan; no environment, no script."""
        fields = ("run_id", "name", "cluster", "startup_order", "stop_criteria", "on_stop")
        nodes = [
            {key: node[key] for key in ("rank", "name", "private_ip", "role")}
            for node in self._plan["nodes"]
        ]
        return {**{key: self._plan[key] for key in fields}, "nodes": nodes}

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
        """The verdict, with what only the end of a good run shows of its network."""
        if verdict.status != "done":
            return verdict
        findings = self._proof.at_end()
        for finding in findings:
            self._tell(finding)
        faults = [finding for finding in findings if finding.level == "fault"]
        if not faults:
            return verdict
        return Verdict("failed", WRONG_RUN, faults[0].rank, faults[0].text)

    def _tell(self, finding: Finding) -> None:
        fields = {"rank": finding.rank, "level": finding.level, "text": finding.text}
        self._journal.append("network_seen", **fields)

    def _act(self, action: Action) -> None:
        if isinstance(action, Start):
            self._channels[action.rank].send({"do": "start"})
        elif isinstance(action, Stop) and action.rank in self._channels:
            self._channels[action.rank].send({"do": "stop"})

    def _abandon(self) -> None:
        """Nodes that did not stop in time are given up, so that the run ends all the same."""
        for rank, node in enumerate(self._state.nodes):
            if node.phase != "gone":
                reason = f"did not stop within {STOP_BOUND_S} s"
                self._journal.append("node_lost", rank=rank, reason=reason)
                self._told.add(rank)
                if rank in self._channels:
                    self._channels[rank].give_up(reason)
                self._inbox.put_nowait(Gone(rank, reason))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for channel in self._channels.values():
                channel.send({"do": "heartbeat"})

    async def _attend(self, rank: int) -> None:
        """One node from launch to its end, as events in the inbox and the journal."""
        try:
            reason = await self._launch(rank)
        except OSError as error:  # no ssh, no systemd-run
            reason = f"its worker cannot be launched: {error}"
        if rank in self._told:
            pass
        elif self._state.verdict:
            idle = self._state.nodes[rank].phase in ("launching", "prepared")
            reason = "never started" if idle else reason
            self._journal.append("node_stopped", rank=rank, reason=reason)
        else:
            self._journal.append("node_lost", rank=rank, reason=reason)
        self._inbox.put_nowait(Gone(rank, reason))

    async def _launch(self, rank: int) -> str:
        """Returns why, when the node's worker is gone."""
        prepared = asyncio.Event()
        async with self._launches:
            if self._state.verdict:
                return "the run ended before it was launched"
            channel = Channel(await self._launcher.open(rank))
            self._channels[rank] = channel
            channel.send(self._order(rank))
            if self._state.verdict:  # reached while the process was being made
                channel.send({"do": "stop"})
            reading = asyncio.ensure_future(self._read(rank, channel, prepared))
            answer = asyncio.ensure_future(prepared.wait())
            await asyncio.wait(
                [answer, reading], timeout=PREPARE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not prepared.is_set() and not reading.done():
                channel.give_up(f"no answer within {PREPARE_S} s")
            answer.cancel()
        await reading
        return await channel.ended()

    def _order(self, rank: int) -> Message:
        from engine.agent.interruption import METADATA  # late, as HTTP takes long to import

        node = self._plan["nodes"][rank]
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
            "silence_s": SILENCE_S,
            "metadata": METADATA if self._plan["is_spot"] else None,
        }

    async def _read(self, rank: int, channel: Channel, prepared: asyncio.Event) -> None:
        async for event in channel.events():
            kind = event.pop("kind")
            fields = {**event, "rank": rank}
            if kind == "prepared":
                prepared.set()
                self._inbox.put_nowait(Prepared(rank))
            elif kind == "not_prepared":
                self._inbox.put_nowait(NotPrepared(rank, event["reason"]))
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
            self._look_at(fields)
        elif kind == "node_ready":
            self._inbox.put_nowait(Ready(rank))
        elif kind == "rank_started":
            self._inbox.put_nowait(RankStarted(rank, fields["process"], fields["size"]))
        elif kind == "node_interrupted":
            self._inbox.put_nowait(Interrupted(rank, fields["action"], fields["at"]))

    def _look_at(self, output: Message) -> None:
        """What a line of output shows of the network is told, and ends the run if it must."""
        line = self._pieces.line(output)
        if line is None:
            return
        for finding in self._proof.feed(output["rank"], output["stream"], line):
            self._tell(finding)
            if finding.level == "fault":
                self._inbox.put_nowait(NetworkFault(finding.rank, finding.text))

    def _exited(self, rank: int, fields: Message) -> None:
        """A job that ended because we told it to is stopped, whatever it says about it."""
        self._told.add(rank)
        if self._state.nodes[rank].stop_asked:
            self._journal.append("node_stopped", rank=rank)
        else:
            self._journal.append("node_exited", **fields)
        self._inbox.put_nowait(Exited(rank, fields["exit_code"]))
