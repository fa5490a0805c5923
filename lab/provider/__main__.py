"""The provider as a process: `python -m lab.provider --endpoint URL`.

A process of its own, because program and provider in one share an interpreter lock (512 instances:
6 s to preview instead of 33 s). The first line on stdout is the port on loopback. It ends on
SIGTERM, when its standard input closes where that is a pipe, and when its parent is gone.
"""

import argparse
import os
import signal
import stat
import sys
import threading

from lab.provider.server import serve


def main() -> None:
    """The provider has served until it was told to stop."""
    parser = argparse.ArgumentParser(prog="python -m lab.provider")
    parser.add_argument("--endpoint", required=True, help="where the lab's API is")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1, 0: any free")
    given = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's: it stops the engine
    parent = os.getppid()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_until_closed, args=(stop,), daemon=True).start()
    server, port = serve(given.endpoint, given.port)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while not stop.wait(1.0):
        if os.getppid() != parent:
            break
    server.stop(grace=None).wait()


def _until_closed(stop: threading.Event) -> None:
    # Not sys.stdin: its lock, held by this thread, would stop the interpreter from ending.
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    main()
