"""The workers of a run, for its supervisor: launch each, prepare it, read its events to the end.

A worker may outlive its connection, and its supervisor: then the next connection reads on behind
the events that the journal has.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from engine.agent.journal.journal_file import Message
from engine.agent.link.launcher import Launcher
from engine.agent.link.ssh_multiplexing import CONNECT_S
from engine.agent.link.times import TIMES, Times
from engine.agent.link.units import STOP_GRACE_S
from engine.agent.link.worker_link import Channel
from engine.contract.event import Event
from engine.contract.worker_events import NodePrepared, NoWorker, Output, Reached, WorkerEnded

LAUNCHES_AT_ONCE = 64
_RECONNECTIONS = 10  # to a worker: a job may kill its connections again and again

Hear = Callable[[int, Event], None]


class Workers:
    """The workers, one per node. `order` returns their first message, `hear` gets their events.

    `greet` returns the first messages to a worker that runs already, without its `received`.
    `received` are the numbers of the last events that the journal has at first, by rank. A job has
    `grace_s` to end.
    """

    def __init__(
        self,
        launcher: Launcher,
        order: Callable[[int], Message],
        greet: Callable[[int], list[Message]],
        hear: Hear,
        is_over: Callable[[], bool],
        received: Mapping[int, int],
        grace_s: float = STOP_GRACE_S,
        times: Times = TIMES,
    ) -> None:
        self._launcher, self._order, self._greet, self._hear = launcher, order, greet, hear
        self._is_over, self._times = is_over, times
        self._dismiss_s = CONNECT_S + grace_s  # ssh to the node, and then its job's grace
        self._received = dict(received)
        self._given_up: dict[int, str] = {}
        self._channels: dict[int, Channel] = {}
        self._opened: set[Channel] = set()  # all whose process may live; `close` ends them
        self._readings: set[asyncio.Future[None]] = set()
        self._earlier_stderr: dict[int, str] = {}  # of an attempt that was repeated
        self._launches = asyncio.Semaphore(LAUNCHES_AT_ONCE)

    def send(self, rank: int, message: Message) -> None:
        """Send the message to the worker; do nothing if it was never launched."""
        if rank in self._channels:
            self._channels[rank].send(message)

    def give_up(self, rank: int, reason: str) -> None:
        """End the worker and the connection to it."""
        self._given_up[rank] = reason
        if rank in self._channels:
            self._channels[rank].give_up(reason)

    def is_unreached(self, rank: int) -> bool:
        """Return whether ssh failed and nothing has ever come from the node."""
        if self._received.get(rank):
            return False
        return rank in self._channels and self._channels[rank].is_unreached

    async def why_gone(self, rank: int) -> str:
        """Return why the node has no worker, if it says so itself; else empty.

        If only the connection has ended, connect again and read on to the end: a process of it was
        killed, or the network cut it. A node that does not answer then, or has no worker, is lost.
        """
        if not self._received.get(rank):
            return ""
        for _ in range(_RECONNECTIONS):
            channel = self._channels[rank]
            if channel.no_worker or channel.is_given_up:
                break
            if channel.is_broken:
                again, _ = await self._connect(rank, self._times.reconnect_s)
                was_cut = (again.is_broken or again.was_killed) and not again.no_worker
                if not again.is_attached and not was_cut:
                    self._channels[rank] = channel
                    return ""
            elif channel.was_killed:
                await self.take_up(rank, may_launch=False)
            else:
                break
        return self._channels[rank].no_worker

    def stderr_text(self, rank: int) -> str:
        """Return the standard error of ssh and the worker."""
        last = self._channels[rank].stderr_text if rank in self._channels else ""
        return last or self._earlier_stderr.get(rank, "")

    async def close(self) -> None:
        """Close all connections, also those of calls that were cancelled."""
        await asyncio.gather(*(channel.close() for channel in self._opened))
        for reading in self._readings:
            reading.cancel()
        await asyncio.gather(*self._readings, return_exceptions=True)  # logged by who awaited it

    async def attend(self, rank: int) -> str:
        """Launch the node's worker, read its events to the end, and return why it ended.

        Retry a node that cannot be reached, but only while nothing has come from it: a worker that
        has begun is never launched a second time.
        """
        async with self._launches:
            give_up, reason = asyncio.get_running_loop().time() + self._times.reach_s, ""
            while True:
                if self._is_over():
                    return "the run ended before it was launched"
                channel = await self._open(self._launcher.open(rank))
                reading = await self._prepare(rank, channel, give_up, reason)
                if not reading.done():
                    break
                reason = await channel.wait_for_end()
                self._opened.discard(channel)
                left = give_up - asyncio.get_running_loop().time()
                if left < self._times.retry_s or not channel.is_unreached:
                    return reason
                self._earlier_stderr[rank] = channel.stderr_text
                await asyncio.sleep(self._times.retry_s)
        await reading
        return await channel.wait_for_end()

    async def take_up(self, rank: int, may_launch: bool) -> str:
        """Do as `attend` with a worker that an earlier supervisor launched.

        If the node has none, launch it if `may_launch`: its job was never started.
        """
        channel, reason = await self._connect(rank, self._times.reach_s)
        if not channel.is_attached and may_launch and not channel.is_unreached:
            return await self.attend(rank)
        return reason

    async def dismiss(self, rank: int) -> None:
        """End a worker that may have outlived its ssh connection; give up after a while."""
        if rank not in self._channels or not self._channels[rank].is_broken:
            return
        channel = await self._open(self._launcher.attach(rank))
        try:
            first, *_ = self._greet(rank)
            channel.send({**first, "received": 1 << 62})  # nobody reads its events any more
            channel.send({"do": "leave"})
            # `wait_for_end` would close stdin, and then `attach` ends before the worker does.
            await asyncio.wait([self._start(_read_to_end(channel))], timeout=self._dismiss_s)
        finally:
            await channel.close()
            self._opened.discard(channel)

    async def _open(self, opening: Coroutine[Any, Any, Process]) -> Channel:
        """Return the channel of a new process, which ends with `close` at the latest."""
        channel = Channel(await opening)
        self._opened.add(channel)
        return channel

    def _start(self, reading: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Return the task that reads a channel; it ends with `close` at the latest."""
        task = asyncio.ensure_future(reading)
        self._readings.add(task)
        task.add_done_callback(self._readings.discard)
        return task

    async def _connect(self, rank: int, patience_s: float) -> tuple[Channel, str]:
        """Connect to the running worker and read its events; return the channel and its end."""
        give_up = asyncio.get_running_loop().time() + patience_s
        while True:
            async with self._launches:
                channel = await self._open(self._launcher.attach(rank))
                self._channels[rank] = channel
                first, *others = self._greet(rank)
                for message in ({**first, "received": self._received.get(rank, 0)}, *others):
                    channel.send(message)
                reading = self._start(self._read(rank, channel, asyncio.Event()))
                left = give_up - asyncio.get_running_loop().time()
                if not await _first(channel.reached.wait(), reading, left):
                    channel.give_up(f"no answer within {patience_s:g} s")
            await reading
            reason = await channel.wait_for_end()
            self._opened.discard(channel)
            left = give_up - asyncio.get_running_loop().time()
            if channel.is_given_up or not channel.is_unreached or left < self._times.retry_s:
                return channel, reason
            await asyncio.sleep(self._times.retry_s)
            if rank in self._given_up:
                return channel, self._given_up[rank]

    async def _prepare(
        self, rank: int, channel: Channel, give_up: float, earlier: str
    ) -> asyncio.Future[None]:
        """Wait until the worker is prepared or has ended; return the task that reads its events.

        `earlier` is the reason with which an earlier attempt ended, or empty.
        """
        self._channels[rank] = channel
        channel.send(self._order(rank))
        if self._is_over():  # the run ended while the process was created
            channel.send({"do": "stop"})
        prepared = asyncio.Event()
        reading = self._start(self._read(rank, channel, prepared))
        left = give_up - asyncio.get_running_loop().time()
        if not await _first(channel.reached.wait(), reading, left):
            channel.give_up(earlier or f"no answer within {self._times.reach_s:g} s")
        elif not await _first(prepared.wait(), reading, self._times.prepare_s):
            channel.give_up(f"its worker was not prepared within {self._times.prepare_s:g} s")
        return reading

    async def _read(self, rank: int, channel: Channel, prepared: asyncio.Event) -> None:
        async for event in channel.events():
            if isinstance(event, Reached):
                channel.is_attached = True
                continue
            if isinstance(event, NoWorker):
                channel.no_worker = event.why
                continue
            if isinstance(event, NodePrepared):
                prepared.set()
            if 0 < event.sequence <= self._received.get(rank, 0):
                continue  # the journal has it
            if not isinstance(event, WorkerEnded):
                self._hear(rank, event)
            if event.sequence:
                self._received[rank] = event.sequence
                channel.acknowledge(event.sequence, is_output=isinstance(event, Output))


async def _read_to_end(channel: Channel) -> None:
    async for _ in channel.events():
        pass


async def _first(
    awaited: Coroutine[Any, Any, Any], reading: asyncio.Future[None], seconds: float
) -> bool:
    """Wait until `awaited` or `reading` is done; return False if neither is in time."""
    waiting = asyncio.ensure_future(awaited)
    try:
        done, _ = await asyncio.wait(
            [waiting, reading], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        waiting.cancel()
    return bool(done)
