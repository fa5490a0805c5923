"""The way from a job to its node's worker: `bin/ssh` and `bin/with-env` of a run's folder.

One file on its own: it lies in the run's folder and runs wherever launchers run, in containers too,
on Python 3.6 and later. It carries nothing itself: its descriptors go to the worker, which starts
the command with them.
"""

import array
import json
import os
import select
import signal
import socket
import sys

SOCKET = "worker.sock"
FAILED = 255  # ssh's status for a failure of its own (ssh(1))
ENV_FAILED = 125  # env's (env(1) of coreutils); 126 and 127: it cannot be executed, is not there
# ssh(1) of OpenSSH 9.2; a colon follows an option that has an argument.
_OPTIONS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVw:W:XYy"


def main(arguments: "list[str]") -> int:
    """The exit status of the command that `arguments` want."""
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in (0, 1, 2):  # closed ones would be taken by the socket
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    mode, words = arguments[0], arguments[1:]
    if mode == "with-env":
        return with_environment(words)
    if mode == "local":
        import threading  # each end of a rank's way imports only its own: there are many at once

        threading.Thread(target=_leave_with_connection, daemon=True).start()
        return _run({"do": "run", "host": "", "command": words[0]})
    import getopt

    try:
        host, command = parse(words)
    except (getopt.GetoptError, ValueError) as error:
        return _complain(f"ssh of gpuctl: {error}", FAILED)
    return _run({"do": "run", "host": host, "command": command})


def parse(words: "list[str]") -> "tuple[str, str]":
    """Host and command of ssh's arguments; its options are read over, as they mean nothing here.

    ValueError, getopt.GetoptError for what ssh does not take either.
    """
    import getopt

    options, rest = getopt.getopt(words, _OPTIONS)
    if not rest:
        raise ValueError("no host is given")
    before = words[: len(words) - len(rest)]
    host, rest = rest[0].rpartition("@")[2], rest[1:]
    if before[-1:] != ["--"]:  # ssh takes options behind the host too
        more, rest = getopt.getopt(rest, _OPTIONS)
        options += more
    if not rest:
        raise ValueError(f"no command for {host} is given")
    if any(name in ("-n", "-f") for name, _ in options):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return host, " ".join(rest)


def with_environment(words: "list[str]") -> int:
    """Does not return where `words` can be executed: they are, with the run's environment."""
    try:
        with _connection() as connection:
            _send(connection, {"do": "environment"})
            with connection.makefile("rb") as answer:
                os.environ.update(json.loads(answer.read().decode()))
    except (OSError, ValueError) as error:
        return _complain(f"with-env: the run's worker does not answer: {error}", ENV_FAILED)
    try:
        os.execvp(words[0], words)  # noqa: S606  that is what it is for
    except IndexError:
        return _complain("with-env: no command is given", ENV_FAILED)
    except OSError as error:
        status = 127 if isinstance(error, FileNotFoundError) else 126
        return _complain(f"with-env: {words[0]}: {error.strerror}", status)


def _run(request: "dict[str, str]") -> int:
    """The status of the command, which has ended; it ends too when this process does."""
    try:
        with _connection() as connection:
            _send(connection, request)
            status = connection.recv(16)
    except OSError as error:
        return _complain(f"ssh of gpuctl: the run has ended here: {error}", FAILED)
    return int(status) if status else FAILED


def _connection() -> socket.socket:
    """A connection to this node's worker."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.path.join(folder, SOCKET))  # noqa: PTH118
    return connection


def _send(connection: socket.socket, request: "dict[str, str]") -> None:
    """The worker has this process's streams and the request."""
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    connection.sendmsg([b"\n"], streams)
    connection.sendall(json.dumps(request).encode() + b"\n")


def _leave_with_connection() -> None:
    """The process has ended, because nobody reads its output any more: the ssh to it is gone.

    sshd tells a command without a terminal in no other way.
    """
    poll = select.poll()
    poll.register(1, 0)  # an error or a hang-up, which need not be asked for
    poll.poll()
    os._exit(FAILED)


def _complain(text: str, status: int) -> int:
    sys.stderr.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
