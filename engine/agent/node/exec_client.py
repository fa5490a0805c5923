"""The job's side of the entrance: `bin/ssh` and `bin/with-env` in a run's folder.

This file imports nothing of gpuctl: it is copied to the run's folder and runs wherever launchers
run, also in containers, on Python 3.6 and later. It transfers no data itself: it passes its
descriptors to the worker, which starts the command with them.
"""

import array
import json
import os
import select
import signal
import socket
import sys

SOCKET = "worker.sock"
FAILED = 255  # ssh's exit status if ssh itself fails (ssh(1))
ENV_FAILED = 125  # env's own failure (env(1) of coreutils); 126: cannot be executed, 127: not found
# From ssh(1) of OpenSSH 9.2; a colon follows an option that takes an argument.
_OPTIONS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVw:W:XYy"


def main(arguments: "list[str]") -> int:
    """Run the command of `arguments` and return its exit status."""
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in (0, 1, 2):  # otherwise the socket could get the number of a closed one
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    mode, words = arguments[0], arguments[1:]
    if mode == "with-env":
        return with_environment(words)
    if mode == "local":
        import threading  # noqa: PLC0415  many of these processes start at once

        threading.Thread(target=_exit_with_connection, daemon=True).start()
        return _run({"do": "run", "host": "", "command": words[0]})
    try:
        host, command = parse(words)
    except ValueError as error:
        return _fail(f"ssh of gpuctl: {error}", FAILED)
    return _run({"do": "run", "host": host, "command": command})


def parse(words: "list[str]") -> "tuple[str, str]":
    """Return host and command of ssh's arguments; ignore ssh's options, except for -n and -f.

    Raises ValueError for arguments that ssh would reject too.
    """
    options, rest = _options(words)
    if not rest:
        raise ValueError("no host is given")
    before = words[: len(words) - len(rest)]
    host, rest = rest[0].rpartition("@")[2], rest[1:]
    if before[-1:] != ["--"]:  # ssh accepts options after the host too
        more, rest = _options(rest)
        options += more
    if not rest:
        raise ValueError(f"no command for {host} is given")
    if any(name in ("-n", "-f") for name, _ in options):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return host, " ".join(rest)


def _options(words: "list[str]") -> "tuple[list[tuple[str, str]], list[str]]":
    """Return ssh's options at the begin of the words, and the words behind them."""
    import getopt  # noqa: PLC0415  many of these processes start at once, and few are ssh

    try:
        return getopt.getopt(words, _OPTIONS)
    except getopt.GetoptError as error:
        raise ValueError(str(error)) from None


def with_environment(words: "list[str]") -> int:
    """Execute `words` with the run's environment; return an exit status only on failure."""
    try:
        with _connection() as connection:
            _send(connection, {"do": "environment"})
            with connection.makefile("rb") as answer:
                os.environ.update(json.loads(answer.read().decode()))
    except (OSError, ValueError) as error:
        return _fail(f"with-env: the run's worker does not answer: {error}", ENV_FAILED)
    try:
        os.execvp(words[0], words)  # noqa: S606  the purpose of with-env
    except IndexError:
        return _fail("with-env: no command is given", ENV_FAILED)
    except OSError as error:
        status = 127 if isinstance(error, FileNotFoundError) else 126
        return _fail(f"with-env: {words[0]}: {error.strerror}", status)


def _run(request: "dict[str, str]") -> int:
    """Run the command and return its status; the command ends if this process ends first."""
    try:
        with _connection() as connection:
            _send(connection, request)
            status = connection.recv(16)
    except OSError as error:
        return _fail(f"ssh of gpuctl: the run has ended here: {error}", FAILED)
    return int(status) if status else FAILED


def _connection() -> socket.socket:
    """Return a connection to this node's worker."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.path.join(folder, SOCKET))  # noqa: PTH118
    return connection


def _send(connection: socket.socket, request: "dict[str, str]") -> None:
    """Send the request and this process's streams to the worker."""
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    connection.sendmsg([b"\n"], streams)
    connection.sendall(json.dumps(request).encode() + b"\n")


def _exit_with_connection() -> None:
    """Wait until nobody reads this process's output any more, then exit.

    For a command without a terminal this is the only sign that its ssh connection ended.
    """
    poll = select.poll()
    poll.register(1, 0)  # errors and hang-ups are always reported
    poll.poll()
    os._exit(FAILED)


def _fail(text: str, status: int) -> int:
    sys.stderr.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
