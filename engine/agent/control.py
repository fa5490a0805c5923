"""The supervisor's socket and its clients: follow, stop, acknowledge.

It is a Unix socket in the run's folder. A follower notices the end of the supervisor, for whatever
reason, by the end of file, so that it does not have to poll.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import asyncio

    from engine.agent.journal import Journal

SOCKET = "supervisor.sock"
JOURNAL = "journal.jsonl"
READ = "read"
"""A file in a run's folder; it exists once a client has read the journal to its end."""


async def serve(
    folder: Path, journal: Journal, answers: dict[str, Callable[[], None]]
) -> asyncio.AbstractServer:
    """Listen on the socket in `folder`; `journal` wakes followers, `answers` has other words."""
    import asyncio

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # the client has left
            word = (await reader.readline()).decode().strip()
            if word == "follow":
                journal.add_follower(writer)
                writer.write(b"\n")
                await reader.read()  # until the follower leaves
            elif word in answers:
                answers[word]()
                writer.write(b"ok\n")
                await writer.drain()
        journal.remove_follower(writer)
        writer.close()

    return await asyncio.start_unix_server(attend, path=str(folder / SOCKET))


def call(folder: Path, word: str) -> int:
    """Send `word` (stop, ack) to the supervisor; return 0, or 1 if there is no supervisor."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / SOCKET))
            connection.sendall(word.encode() + b"\n")
            return 0 if connection.recv(16) else 1
    except OSError:
        return 1


def follow(folder: Path, offset: int) -> int:
    """Copy the journal from byte `offset` to stdout until the run ends; return 0.

    At the end, mark the run as read. If the supervisor ended before the run, or never ran, the
    last line is `supervisor_lost`.
    """
    path = folder / JOURNAL
    last = _copy(path, offset, folder / SOCKET) if path.exists() else b""
    if b'"kind": "run_finished"' not in last:
        lost = json.dumps({"kind": "supervisor_lost", "time": round(time.time(), 3)})
        sys.stdout.write(lost + "\n")
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # the disk is full, or the run does not exist
        (folder / READ).touch()
    return 0


def _copy(path: Path, offset: int, waker: Path) -> bytes:
    """Copy the growing file to stdout until `waker` is gone; return its last line."""
    end = b""
    with path.open("rb") as journal, socket.socket(socket.AF_UNIX) as connection:
        journal.seek(offset)
        try:
            connection.connect(str(waker))
            connection.sendall(b"follow\n")
            while connection.recv(4096):
                end = _copy_new(journal, end)
        except OSError:  # no supervisor: the file does not grow any more
            pass
        end = _copy_new(journal, end)
    return end.rstrip(b"\n").rpartition(b"\n")[2]


def _copy_new(journal: BinaryIO, end: bytes) -> bytes:
    """Copy new bytes to stdout; return the last 4 KiB, enough for any event except output."""
    while True:
        data = journal.read(1 << 20)
        if not data:
            break
        sys.stdout.buffer.write(data)
        end = (end + data)[-4096:]
    sys.stdout.buffer.flush()
    return end
