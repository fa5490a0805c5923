"""The way to a cluster's broker (`nodes.broker`), which holds ssh connections to its nodes.

It is started when none answers. This module imports little on purpose: a command that finds a
broker needs neither asyncssh nor asyncio nor pydantic.
"""

import fcntl
import json
import os
import socket
import sys
import zlib
from typing import Any

SOCKET = "broker.sock"
LOCK = "broker.lock"
LOG = "broker.log"
IDLE_S = 600.0
"""So long a broker waits for the next command."""
LIMIT = 1 << 24
"""Bytes that wait for a slow reader before its writer has to wait too."""

_WORDS = 1  # of the language between client and broker
_HELLO_S = 60
_LONGEST = 100  # bytes of a Unix socket's path that every system takes
_FILES = ("known_hosts", "id_ed25519")

Message = dict[str, Any]


class BrokerLost(Exception):
    """The broker ended before its answer."""


def stamp(folder: str, inventory: Message) -> str:
    """What a broker's connections depend on: nodes, pinned host keys, the client's key.

    Where nodes are reached by a command, that is also the AWS account and credentials of today.
    """
    parts: list[object] = [_WORDS, zlib.crc32(json.dumps(inventory, sort_keys=True).encode())]
    if inventory.get("proxy"):
        account = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
        parts.append(zlib.crc32(repr(account).encode()))
    for name in _FILES:
        try:
            found = os.stat(f"{folder}/{name}")  # noqa: PTH116  pathlib costs a third of the start
            parts += [found.st_ino, found.st_mtime_ns]
        except OSError:
            parts += [0, 0]
    return " ".join(map(str, parts))


def dial(folder: str, inventory: Message) -> socket.socket:
    """A connection to the cluster's broker, which is started where none answers.

    OSError where none can be started.
    """
    connection = find(folder, inventory)
    if connection is not None:
        return connection
    mark = stamp(folder, inventory)
    descriptor = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # one starts a broker, others find it
        connection = _dial(folder, mark)
        if connection is None:
            _start(folder, {"inventory": inventory, "stamp": mark, "idle_s": IDLE_S})
            connection = _dial(folder, mark)
    finally:
        os.close(descriptor)
    if connection is None:
        raise OSError(f"the broker of ssh connections ended; see {folder}/{LOG}")
    return connection


def find(folder: str, inventory: Message) -> socket.socket | None:
    """A connection to the cluster's broker; None where none has these nodes and keys."""
    return _dial(folder, stamp(folder, inventory))


def end(folder: str) -> None:
    """End the broker of the cluster whose folder it is; what is under way there is answered."""
    connection = _open(folder)
    if connection is not None:
        with connection:
            connection.sendall(b"end\n")  # no broker has this stamp
            connection.settimeout(_HELLO_S)
            connection.recv(1)


def request(connection: socket.socket, message: Message, data: bytes = b"") -> None:
    """Send one request."""
    connection.sendall(json.dumps({**message, "size": len(data)}).encode() + b"\n" + data)


def run_everywhere(connection: socket.socket, command: str) -> Message:
    """Run the command on every node and return the broker's answer: one for each node's name."""
    request(connection, {"do": "run", "nodes": None, "command": command, "timeout": None})
    with connection, connection.makefile("rb") as reader:
        line = reader.readline()
    if not line:
        raise BrokerLost
    answer: Message = json.loads(line)
    return answer


def _dial(folder: str, mark: str) -> socket.socket | None:
    """A connection whose broker has the same stamp; None where there is none."""
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
        pass  # it ends just now: another one is started
    connection.close()
    return None


def _open(folder: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    path = f"{folder}/{SOCKET}"
    try:
        if len(path.encode()) <= _LONGEST:
            connection.connect(path)
        else:  # a longer path than a socket's address takes: by its name in the folder
            here = os.open(".", os.O_RDONLY)
            try:
                os.chdir(folder)
                connection.connect(SOCKET)
            finally:
                os.fchdir(here)
                os.close(here)
    except OSError:
        connection.close()
        return None
    return connection


def _start(folder: str, handed: Message) -> None:
    import subprocess

    descriptor = os.open(f"{folder}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-m", "nodes.broker", folder],
            input=json.dumps(handed).encode(),
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),  # noqa: PTH100, PTH120
            check=False,
        )
    finally:
        os.close(descriptor)
