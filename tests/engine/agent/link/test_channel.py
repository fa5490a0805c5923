"""A worker's pipe as the supervisor reads it: nodes take turns, and no line is without bounds."""

import asyncio
from asyncio.subprocess import PIPE
from itertools import pairwise

from engine.agent.link import worker_link as channels
from engine.agent.link.launcher import HELD
from engine.agent.link.worker_link import LINE_LIMIT, Channel
from engine.contract.event import Event, to_line
from tests.engine.bare_events import printed

EVENT = to_line(printed("x" * 60))


async def channel_of(script: str) -> Channel:
    argv = ("bash", "-c", script)
    return Channel(
        await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
    )


def heard(script: str) -> tuple[list[Event], str]:
    """All events that the script sends, and how the channel says that it ended."""

    async def hear() -> tuple[list[Event], str]:
        channel = await channel_of(script)
        events = [event async for event in channel.events()]
        return events, await channel.wait_for_end()

    return asyncio.run(hear())


def test_a_node_that_floods_takes_a_turn_and_no_more() -> None:
    most = channels._TURN // len(EVENT) + 1

    async def longest_turn() -> int:
        channel = await channel_of(f"yes '{EVENT}' | head -n 20000")
        taken, seen = 0, [0]

        async def others() -> None:
            while True:
                seen.append(taken)
                await asyncio.sleep(0)

        turning = asyncio.ensure_future(others())
        async for _ in channel.events():
            taken += 1
        turning.cancel()
        await channel.wait_for_end()
        assert taken == 20000
        return max(later - earlier for earlier, later in pairwise(seen))

    assert asyncio.run(longest_turn()) <= most


def test_no_more_is_taken_from_a_pipe_than_is_read() -> None:
    async def waiting() -> int:
        channel = await channel_of(f"yes '{EVENT}'")
        events = channel.events()
        # While it connects its pipes, asyncio reads without bounds: that comes first.
        for _ in range(10_000):
            await anext(events)
        for _ in range(20):  # turns in which nobody reads
            await asyncio.sleep(0.001)
        size = len(channel._stdout._buffer)  # type: ignore[attr-defined]
        channel.give_up("enough")
        await channel._drain()
        await channel.wait_for_end()
        return size

    assert asyncio.run(waiting()) <= 2 * HELD + 64 * 1024  # and one read of a pipe


def test_a_line_that_comes_in_parts_is_one_event_and_words_of_a_login_are_none() -> None:
    long = to_line(printed("y" * 100_000))
    script = (
        f"echo Welcome; printf '%s' '{long[:5000]}'; sleep 0.1; echo '{long[5000:]}'; echo '[]'"
    )
    assert heard(script) == ([printed("y" * 100_000)], "its worker ended with 0")


def test_a_line_without_bounds_is_given_up() -> None:
    events, reason = heard(f"echo '{EVENT}'; exec head -c {2 * LINE_LIMIT} /dev/zero")
    assert (events, reason) == ([printed("x" * 60)], "its worker sent a line that is not an event")
