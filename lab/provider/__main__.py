"""The provider as a process: `python -m lab.provider --endpoint URL`.

It is a separate process because program and provider in one would share an interpreter lock (a
preview of 512 instances takes 6 s instead of 33 s). The first line on stdout is the port on
loopback. The process ends on SIGTERM, when its parent ends, and, if its standard input is a pipe,
when that closes.
"""

import argparse
import os
import signal
import stat
import sys
import threading
from pathlib import Path

from lab.provider.server import serve


def main() -> None:
    """Serve the provider until one of the reasons to end."""
    parser = argparse.ArgumentParser(prog="python -m lab.provider")
    parser.add_argument("--endpoint", required=True, help="where the lab's API is")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1, 0: any free")
    parser.add_argument("--faults", type=Path, help="the lab's table of faults")
    given = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client
    parent = os.getppid()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_until_closed, args=(stop,), daemon=True).start()
    server, port = serve(given.endpoint, given.port, given.faults)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while not stop.wait(1.0):
        if os.getppid() != parent:
            break
    server.stop(grace=None).wait()


def _until_closed(stop: threading.Event) -> None:
    # Not sys.stdin: this thread would hold its lock and keep the interpreter from ending.
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    main()
