"""Connect to a cluster's broker (`nodes.broker`), which keeps ssh connections to its nodes.

A broker is started if none answers.

Bytes travel in both directions as frames: a length, and as many bytes. The length has four bytes,
the most significant first. A frame of length 0 ends the stream.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from config.file_locks import wait_for_lock

SOCKET = "broker.sock"
LOCK = "broker.lock"
LOG = "broker.log"
IDLE_S = 600.0
"""Seconds that a broker waits for the next command before it ends."""
LIMIT = 1 << 24
"""Bytes that may wait for a slow reader before the writer has to wait too."""

_PROTOCOL = 2  # version of the protocol between client and broker
_HELLO_S = 60
_LONGEST = 100  # bytes of a Unix socket's path that every system accepts
_FILES = ("known_hosts", "id_ed25519")

Message = dict[str, Any]


def stamp(folder: str, inventory: Message) -> str:
    """Return a text that changes with the nodes, the pinned host keys or the client's key.

    A broker serves only clients with its stamp. If nodes are reached by a command (`proxy`), the
    stamp also depends on the AWS variables of the environment; and without the cluster's key, or if
    a node has another command, which is the user's ssh, on the user's ssh agent.
    """
    parts: list[object] = [_PROTOCOL, zlib.crc32(json.dumps(inventory, sort_keys=True).encode())]
    if inventory.get("proxy"):
        account = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
        parts.append(zlib.crc32(repr(account).encode()))
    for name in _FILES:
        try:
            status = Path(folder, name).stat()
            parts += [status.st_ino, status.st_mtime_ns]
        except OSError:
            parts += [0, 0]
    has_users_ssh = any(node.get("proxy") for node in inventory.get("nodes", ()))
    if parts[-2:] == [0, 0] or has_users_ssh:
        parts.append(zlib.crc32(os.environ.get("SSH_AUTH_SOCK", "").encode()))
    return " ".join(map(str, parts))


def dial(folder: str, inventory: Message, idle_s: float = IDLE_S) -> socket.socket:
    """Return a connection to the cluster's broker; start a broker if none answers.

    The broker ends when nobody has used it for `idle_s`.

    Raises OSError if no broker can be started.
    """
    mark = stamp(folder, inventory)
    connection = _dial(folder, mark)
    if connection is not None:
        return connection
    descriptor = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor) as lock:
        wait_for_lock(lock)  # one starts a broker, others find it
        connection = _dial(folder, mark)
        if connection is None:
            _start(folder, {"inventory": inventory, "stamp": mark, "idle_s": idle_s})
            connection = _dial(folder, mark)
    if connection is None:
        raise OSError(f"the broker of ssh connections ended; see {folder}/{LOG}")
    return connection


def end(folder: str) -> None:
    """End the broker of the cluster with this folder; it answers its requests under way first."""
    connection = _open(folder)
    if connection is not None:
        with connection, contextlib.suppress(ConnectionError):  # it has just ended by itself
            connection.sendall(b"end\n")  # a wrong stamp ends a broker
            connection.settimeout(_HELLO_S)
            connection.recv(1)


def _dial(folder: str, mark: str) -> socket.socket | None:
    """Return a connection to a broker with the same stamp, or None if there is no such broker."""
    connection = _open(folder)
    if connection is None:
        return None
    try:
        connection.settimeout(_HELLO_S)
        connection.sendall(mark.encode() + b"\n")
        if connection.recv(3) == b"ok\n":
            connection.settimeout(None)
            return connection
    except OSError:
        pass  # the broker ended just now: the caller starts another one
    connection.close()
    return None


def _open(folder: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    path = f"{folder}/{SOCKET}"
    try:
        if len(path.encode()) <= _LONGEST:
            connection.connect(path)
        else:  # the path is too long for a socket's address: use the name relative to the folder
            working = os.open(".", os.O_RDONLY)
            try:
                os.chdir(folder)
                connection.connect(SOCKET)
            finally:
                os.fchdir(working)
                os.close(working)
    except OSError:
        connection.close()
        return None
    return connection


def _start(folder: str, handed: Message) -> None:
    descriptor = os.open(f"{folder}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-m", "nodes.broker", folder],
            input=json.dumps(handed).encode(),
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
            cwd=Path(__file__).absolute().parents[1],
            check=False,
        )
    finally:
        os.close(descriptor)


FRAME = 1 << 16
"""Bytes to read at once."""
_LENGTH = 4


class Disconnected(Exception):
    """The error that the other side has ended before the stream was over."""


class FrameWriter:
    """A stream of frames to the other side. `drain` waits for a side that reads slowly."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._is_over = False

    def write(self, data: bytes, /) -> None:
        """Send the bytes as one frame; nothing for no bytes."""
        if data:
            self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)

    async def drain(self) -> None:
        """Wait until more can be sent; ConnectionError if the other side has ended."""
        await self._writer.drain()

    def write_eof(self) -> None:
        """End the stream; do nothing the second time."""
        if not self._is_over:
            self._is_over = True
            self._writer.write(bytes(_LENGTH))


class FrameReader:
    """A stream of frames from the other side."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = 0
        self._is_over = False

    async def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end. Raises Disconnected."""
        if self._is_over:
            return b""
        try:
            if not self._left:
                self._left = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            data = await self._reader.read(min(size, self._left))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Disconnected from error
        if not data and self._left:
            raise Disconnected
        self._left -= len(data)
        self._is_over = not data
        return data
