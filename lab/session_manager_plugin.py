"""AWS's `session-manager-plugin`, as far as a rehearsal needs it.

The first argument is the lab's network namespace. The others are the real one's: the answer of
StartSession is in the environment variable that the next one names. The real one speaks a websocket
protocol to AWS's servers; this one enters the lab's network and connects to the address that the
lab's StartSession told. Python's standard library alone, one process per connection.
"""

import ctypes
import json
import os
import selectors
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

VERSION = "1.2.536.0"  # of the real one whose arguments it understands
NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16


def main() -> int:
    """Carry the connection until either side ends it."""
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
        _pass(connection)
    return 0


def _enter(network: Path) -> None:
    """Connections are made in the lab's network from now on; OSError where that is forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)
    with network.open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _pass(connection: socket.socket) -> None:
    """What comes in goes out, both ways, until one side ends."""
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
