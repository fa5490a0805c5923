"""The entrance of commands into a run: the worker's side of `bin/ssh` and `bin/with-env`.

Launchers start ranks on other nodes with a remote agent. gpuctl's agent asks the worker of its
node, which connects to the other node with the cluster's key and asks the worker there. So every
process is in its node's unit and container, has the run's environment, and the job needs neither a
key nor ssh.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

from engine.agent.link.event_stream import Message
from engine.agent.link.listener import Listener
from engine.agent.link.ssh_multiplexing import ssh_to
from engine.agent.node.container import Container, Host
from engine.agent.node.exec_client import FAILED, SOCKET
from engine.agent.node.process_group import ProcessGroup

_CLOEXEC = 0x40000000  # MSG_CMSG_CLOEXEC of recvmsg(2); PyPy does not name it
AT_ONCE = 4096  # 512 nodes with 8 ranks, one command per rank (horovodrun)


class Entrance:
    """The folder `bin/` and the socket of a run, and the processes that were started through them.

    `hosts` are all nodes of the run (LaunchPlan.hosts), `rank` is this node's, `grace_s` the time
    between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        folder: Path,
        place: Container | Host,
        hosts: str,
        rank: int,
        grace_s: float,
        at_once: int = AT_ONCE,
    ) -> None:
        self._folder, self._place, self._grace_s = folder, place, grace_s
        nodes = [line.split() for line in hosts.splitlines()]
        self._ips = {name: ip for ip, *names in nodes for name in (ip, *names)}
        self._own = {"", "localhost", socket.gethostname(), *nodes[rank]}
        self._environment: dict[str, str] = {}
        self._listener = Listener(folder / SOCKET, self._attend)
        self._at_once, self._room = at_once, threading.Semaphore(at_once)
        self._changed = threading.Condition()
        self._groups: set[ProcessGroup] = set()

    def open(self, environment: dict[str, str]) -> None:
        """Accept commands; they get `environment`."""
        self._environment = environment
        client = self._folder / "bin" / "exec_client.py"
        client.parent.mkdir(mode=0o755, exist_ok=True)
        source = pkgutil.get_data("engine.agent.node", "exec_client.py")
        assert source is not None
        client.write_bytes(source)
        for name in ("ssh", "with-env"):
            # -I ignores the job's PYTHONPATH and working directory.
            script = f'#!/bin/sh\nexec python3 -IS {shlex.quote(str(client))} {name} "$@"\n'
            (client.parent / name).write_text(script)
            (client.parent / name).chmod(0o755)
        if "SLURM_JOB_NAME" in environment:  # a batch script of Slurm; many runs are none
            from engine.agent.slurm.install import install  # noqa: PLC0415

            install(client.parent)
        self._listener.open(self._at_once)

    def signal(self, number: int) -> None:
        """Send the signal to all commands that have entered and not ended."""
        with self._changed:
            for group in self._groups:
                group.signal(number)

    def wait(self, seconds: float) -> None:
        """Wait until all commands that have entered have ended, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._groups, max(0.0, seconds))

    def close(self) -> None:
        """Stop accepting commands; remove the socket and `bin/`."""
        self._listener.close()
        shutil.rmtree(self._folder / "bin", ignore_errors=True)  # they contain no secret

    def _attend(self, connection: socket.socket) -> None:
        """Serve one command from its request to its end."""
        # For a caller that left, or an invalid request, only the connection ends.
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            _, streams, _, _ = socket.recv_fds(connection, 1, 3, _CLOEXEC)
            try:
                with connection.makefile("rb") as reader:
                    request = json.loads(reader.readline())
                if request["do"] == "environment":
                    connection.sendall(json.dumps(self._environment).encode())
                    return
                group = self._admit(request, streams)
            finally:
                for stream in streams:
                    os.close(stream)
            if group is None:
                _answer(connection, FAILED)
            else:
                self._wait(group, connection)

    def _admit(self, request: Message, streams: list[int]) -> ProcessGroup | None:
        """Start the command on its node; return None, with a message on its stderr, on failure."""
        if not self._room.acquire(blocking=False):
            _write_error(
                streams, f"this node has {self._at_once} commands already, no more are accepted"
            )
            return None
        try:
            group = ProcessGroup(self._spawn(request, streams))
        except (OSError, ValueError, KeyError) as error:  # unknown node, or an incomplete request
            self._room.release()
            _write_error(streams, str(error))
            return None
        with self._changed:
            self._groups.add(group)
        return group

    def _spawn(self, request: Message, streams: list[int]) -> subprocess.Popen[bytes]:
        host, command = request["host"], request["command"]
        stdin, stdout, stderr = streams
        if host in self._own:
            return self._place.spawn(
                ["bash", "-c", command],
                self._environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        if host not in self._ips:
            raise OSError(f"{host} is not a node of the run {self._folder.name}")
        client = shlex.quote(str(self._folder / "bin" / "exec_client.py"))
        remote = f"exec python3 -IS {client} local {shlex.quote(command)}"
        return subprocess.Popen(
            ssh_to(self._ips[host], remote),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def _wait(self, group: ProcessGroup, connection: socket.socket) -> None:
        """Wait for the command and answer with its status; end it if its caller disconnects.

        Processes that it leaves behind, such as a launcher's daemon, run on until the unit ends.
        """
        left = (group, connection, self._grace_s)
        ending = threading.Thread(target=_end_when_left, args=left, daemon=True)
        ending.start()
        code = group.wait() or 0
        with self._changed:
            self._groups.discard(group)
            self._changed.notify_all()
        self._room.release()
        _answer(connection, code if code >= 0 else 128 - code)
        ending.join()
        group.release()


def _answer(connection: socket.socket, status: int) -> None:
    """Send the status to the caller, if it is still there, and end the connection."""
    with contextlib.suppress(OSError):  # it has left
        connection.sendall(str(status).encode())
        connection.shutdown(socket.SHUT_RDWR)


def _end_when_left(group: ProcessGroup, connection: socket.socket, grace_s: float) -> None:
    with contextlib.suppress(OSError):  # the caller was killed, which counts as a disconnect
        connection.recv(1)  # the caller sends nothing: this returns when either side closes
    if group.status is not None:
        return
    group.signal(signal.SIGTERM)
    group.wait(grace_s)
    group.signal(signal.SIGKILL)


def _write_error(streams: list[int], text: str) -> None:
    """Write the text to the caller's stderr."""
    with contextlib.suppress(OSError):  # the caller does not read it any more
        os.write(streams[2], f"ssh of gpuctl: {text}\n".encode())
