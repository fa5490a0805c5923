"""The lab's version of AWS's `session-manager-plugin`.

The first argument is the lab's network namespace. The others are those of AWS's plugin: the next
one names the environment variable that contains the answer of StartSession. AWS's plugin speaks a
websocket protocol with AWS's servers; this one enters the lab's network and connects to the address
in the answer. It uses Python's standard library alone, and one process per connection.
"""

import ctypes
import json
import os
import selectors
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

VERSION = "1.2.536.0"  # the version of AWS's plugin whose arguments it understands
NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16


def main() -> int:
    """Relay the connection until either side ends it; return the exit code."""
    namespace, *arguments = sys.argv[1:]
    if arguments == ["--version"]:
        sys.stdout.write(f"{VERSION}\n")
        return 0
    stream = urlsplit(json.loads(os.environ[arguments[0]])["StreamUrl"])
    if stream.scheme != "lab" or stream.hostname is None or stream.port is None:
        sys.stderr.write("the lab's session-manager-plugin reaches the lab alone\n")
        return 1
    try:
        _enter(NAMESPACES / namespace)
        connection = socket.create_connection((stream.hostname, stream.port), 10)
    except OSError as error:
        sys.stderr.write(f"{stream.hostname}:{stream.port}: {error}\n")
        return 1
    connection.settimeout(None)
    with connection:
        _relay(connection)
    return 0


def _enter(network: Path) -> None:
    """Enter the lab's network namespace for later connections; OSError if that is forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)
    with network.open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _relay(connection: socket.socket) -> None:
    """Copy data in both directions until one side ends."""
    with selectors.DefaultSelector() as ready:
        ready.register(connection, selectors.EVENT_READ)
        ready.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is connection:
                    data = connection.recv(_CHUNK)
                    sys.stdout.buffer.write(data)
                    sys.stdout.buffer.flush()
                else:
                    data = os.read(0, _CHUNK)
                    connection.sendall(data)
                if not data:
                    return


if __name__ == "__main__":
    sys.exit(main())
