"""The workers of a run as its supervisor has them: each reached, prepared, and heard to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from engine.agent.channel import Channel
from engine.agent.journal import Message
from engine.agent.launcher import Launcher

REACH_S = 60  # a node that has just booted may take so long to let us in
PAUSE_S = 1.0  # between tries to reach it
PREPARE_S = 60
LAUNCHES_AT_ONCE = 64

Hear = Callable[[int, Message], None]


class Workers:
    """One worker a node. `order` makes what it is told first, `hear` gets its events."""

    def __init__(
        self,
        launcher: Launcher,
        order: Callable[[int], Message],
        hear: Hear,
        is_over: Callable[[], bool],
    ) -> None:
        self._launcher, self._order, self._hear = launcher, order, hear
        self._is_over = is_over
        self._channels: dict[int, Channel] = {}
        self._earlier_complaints: dict[int, str] = {}  # of a launch that was tried again
        self._launches = asyncio.Semaphore(LAUNCHES_AT_ONCE)

    def send(self, rank: int, message: Message) -> None:
        """Send the message to the worker; one that was never launched takes none."""
        if rank in self._channels:
            self._channels[rank].send(message)

    def give_up(self, rank: int, reason: str) -> None:
        """Cut the way to the worker, which ends the worker too."""
        if rank in self._channels:
            self._channels[rank].give_up(reason)

    def is_unreached(self, rank: int) -> bool:
        """Return whether nothing ever came from the node, because ssh failed."""
        return rank in self._channels and self._channels[rank].is_unreached

    def complaints(self, rank: int) -> str:
        """Return what ssh and the worker have said on their standard error."""
        last = self._channels[rank].complaints if rank in self._channels else ""
        return last or self._earlier_complaints.get(rank, "")

    async def close(self) -> None:
        """Cut every way that is open still; all that was to be heard has been."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def attend(self, rank: int) -> str:
        """Launch the node's worker and hear it to its end; return why it is gone.

        A node that cannot be reached is tried again, but only as long as nothing came from it: a
        worker that has begun is never launched a second time.
        """
        async with self._launches:
            give_up, reason = asyncio.get_running_loop().time() + REACH_S, ""
            while True:
                if self._is_over():
                    return "the run ended before it was launched"
                channel = Channel(await self._launcher.open(rank))
                reading = await self._prepare(rank, channel, give_up, reason)
                if not reading.done():
                    break
                reason = await channel.ended()
                left = give_up - asyncio.get_running_loop().time()
                if left < PAUSE_S or not channel.is_unreached:
                    return reason
                self._earlier_complaints[rank] = channel.complaints
                await asyncio.sleep(PAUSE_S)
        await reading
        return await channel.ended()

    async def _prepare(
        self, rank: int, channel: Channel, give_up: float, said: str
    ) -> asyncio.Future[None]:
        """Return when the worker is prepared, or has ended: the reading of its events.

        `said` is what an earlier try ended with, if there was one.
        """
        self._channels[rank] = channel
        channel.send(self._order(rank))
        if self._is_over():  # reached while the process was being made
            channel.send({"do": "stop"})
        prepared = asyncio.Event()
        reading = asyncio.ensure_future(self._read(rank, channel, prepared))
        left = give_up - asyncio.get_running_loop().time()
        if not await _first(channel.reached.wait(), reading, left):
            channel.give_up(said or f"no answer within {REACH_S} s")
        elif not await _first(prepared.wait(), reading, PREPARE_S):
            channel.give_up(f"its worker is not prepared within {PREPARE_S} s")
        return reading

    async def _read(self, rank: int, channel: Channel, prepared: asyncio.Event) -> None:
        async for event in channel.events():
            if event["kind"] == "prepared":
                prepared.set()
            if event["kind"] != "reached":  # the way there, which says so: see Channel.reached
                self._hear(rank, event)


async def _first(
    awaited: Coroutine[Any, Any, Any], reading: asyncio.Future[None], seconds: float
) -> bool:
    """Return when `awaited` is done or `reading` is at its end; False when time was over."""
    waiting = asyncio.ensure_future(awaited)
    done, _ = await asyncio.wait(
        [waiting, reading], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
    )
    waiting.cancel()
    return bool(done)
