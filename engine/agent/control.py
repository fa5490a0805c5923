"""The supervisor's socket, and those that call it: follow, stop, acknowledge.

A Unix socket in the run's folder: its end of file tells a follower that the supervisor is gone,
however it went, so that nothing needs to ask in intervals.
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
"""Exists in a run's folder when a client has read the journal to its end."""


async def serve(
    folder: Path, journal: Journal, answers: dict[str, Callable[[], None]]
) -> asyncio.AbstractServer:
    """The socket in `folder` listens: `follow` is woken by `journal`, others are in `answers`."""
    import asyncio

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # a client that left asks nothing
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
    """0 when the supervisor took `word` (stop, ack); 1 when there is no supervisor any more."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / SOCKET))
            connection.sendall(word.encode() + b"\n")
            return 0 if connection.recv(16) else 1
    except OSError:
        return 1


def follow(folder: Path, offset: int) -> int:
    """The journal from byte `offset` is on stdout, to the run's end.

    Where the supervisor went without ending the run, or never was, the last line is
    `supervisor_lost`.
    """
    path = folder / JOURNAL
    last = _copy(path, offset, folder / SOCKET) if path.exists() else b""
    if b'"kind": "run_finished"' not in last:
        lost = json.dumps({"kind": "supervisor_lost", "time": round(time.time(), 3)})
        sys.stdout.write(lost + "\n")
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # a full disk; or there was no such run
        (folder / READ).touch()
    return 0


def _copy(path: Path, offset: int, waker: Path) -> bytes:
    """The file is on stdout, as it grew until `waker` was gone; returns its last line."""
    end = b""
    with path.open("rb") as journal, socket.socket(socket.AF_UNIX) as connection:
        journal.seek(offset)
        try:
            connection.connect(str(waker))
            connection.sendall(b"follow\n")
            while connection.recv(4096):
                end = _copy_new(journal, end)
        except OSError:  # no supervisor: what the file holds is all there will be
            pass
        end = _copy_new(journal, end)
    return end.rstrip(b"\n").rpartition(b"\n")[2]


def _copy_new(journal: BinaryIO, end: bytes) -> bytes:
    """What is new goes to stdout; returns the last of it, enough for any line but output."""
    while True:
        data = journal.read(1 << 20)
        if not data:
            break
        sys.stdout.buffer.write(data)
        end = (end + data)[-4096:]
    sys.stdout.buffer.flush()
    return end
