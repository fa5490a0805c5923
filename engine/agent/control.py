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
from typing import TYPE_CHECKING

from engine.agent.handover import LOST_SUPERVISOR_S, boot_id, may_come_back
from engine.agent.journal_file import JournalReader

if TYPE_CHECKING:
    import asyncio

    from engine.agent.journal import Journal

Answers = dict[str, Callable[[str], None]]
SOCKET = "supervisor.sock"
JOURNAL = "journal.jsonl"
CALL_S = 20.0
"""Seconds to wait for a supervisor that was killed: it is back within 10 s."""
_PAUSE_S = 0.2
READ = "read"
"""A file in a run's folder; it exists once a client has read the journal to its end."""


async def serve(folder: Path, journal: Journal, answers: Answers) -> asyncio.AbstractServer:
    """Listen on the socket in `folder`; `journal` wakes followers, `answers` has other words.

    What follows a word after a space is the argument of its answer.
    """
    import asyncio

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


def call(folder: Path, word: str) -> int:
    """Send `word` to the supervisor: stop, ack, `healed ADDRESSES`; return 1 if there is none.

    Wait for a supervisor that was killed and may come back.
    """
    deadline = time.monotonic() + CALL_S
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / SOCKET))
            connection.sendall(word.encode() + b"\n")
            if connection.recv(16):
                return 0
        if not may_come_back(folder) or time.monotonic() > deadline:
            return 1
        time.sleep(_PAUSE_S)


def follow(folder: Path, offset: int) -> int:
    """Copy the journal from byte `offset` to stdout until the run ends; return 0.

    Wait for a supervisor that was killed and may come back. At the end, mark the run as read. If
    the supervisor ended before the run, or never ran, the last line is `supervisor_lost`.
    """
    from engine.agent.budget import mark_used  # which imports this module

    path = folder / JOURNAL
    with contextlib.closing(JournalReader(path, offset)) as journal:
        last = _copy(journal, folder)
    if b'"kind": "run_finished"' not in last:
        lost = {"kind": "supervisor_lost", "time": round(time.time(), 3), "reason": _reboot(path)}
        sys.stdout.write(json.dumps(lost) + "\n")
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # the disk is full, or the run does not exist
        (folder / READ).touch()
    mark_used(folder)
    return 0


def _reboot(journal: Path) -> str:
    """Return the sentence about a reboot of the head since the run's beginning; empty if none."""
    try:
        with journal.open("rb") as lines:
            then, now = json.loads(next(lines))["boot_id"], boot_id()
    except (OSError, ValueError, KeyError, StopIteration):  # the run never began
        return ""
    if then == now:
        return ""
    return f"the head was rebooted (boot {now[:8]} differs from {then[:8]}, in which it began)"


def _copy(journal: JournalReader, folder: Path) -> bytes:
    """Copy the growing journal to stdout until the run ends or has no supervisor any more.

    Return its last line.
    """
    last = b""
    deadline = time.monotonic() + LOST_SUPERVISOR_S
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / SOCKET))
            connection.sendall(b"follow\n")
            while connection.recv(4096):
                last = _copy_new(journal, last)
                deadline = time.monotonic() + LOST_SUPERVISOR_S
        last = _copy_new(journal, last)
        is_over = last.startswith((b'{"kind": "run_finished"', b'{"kind": "powering_off"'))
        if is_over or not may_come_back(folder) or time.monotonic() > deadline:
            return last
        time.sleep(_PAUSE_S)


def _copy_new(journal: JournalReader, last: bytes) -> bytes:
    """Copy new lines to stdout; return the last line, but not one about a notification."""
    for line in journal.read():
        if not line.startswith(b'{"kind": "noti'):  # they may follow the end of the run
            last = line
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return last
