"""The supervisor's socket on its side: it wakes followers, and answers the words of clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from engine.agent.journal.journal import Journal
from engine.agent.link.control import SOCKET

Answers = dict[str, Callable[[str], None]]


async def serve(folder: Path, journal: Journal, answers: Answers) -> asyncio.AbstractServer:
    """Listen on the socket in `folder`; `journal` wakes followers, `answers` has other words.

    What follows a word after a space is the argument of its answer.
    """

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):  # the client has left
                word, _, argument = (await reader.readline()).decode().strip().partition(" ")
                if word == "follow":
                    journal.add_follower(writer)
                    writer.write(b"\n")
                    await reader.read()  # until the follower leaves
                elif word in answers:
                    answers[word](argument)
                    writer.write(b"ok\n")
                    await writer.drain()
        finally:
            journal.remove_follower(writer)
            writer.close()  # asyncio does it after an error, but not in Python 3.11.2

    return await asyncio.start_unix_server(attend, path=str(folder / SOCKET))
