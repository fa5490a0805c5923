"""Powers this machine off when its cluster has been idle: a program on each machine.

It runs on every node and on the bastion, with the standard library of Python 3.9, and asks nobody
outside of the cluster. A node that is at work says so to all other nodes, in a datagram. A node
that neither works nor hears of work for the whole limit powers off. A message can only prolong:
whoever forges one ends nothing. With a cut network each node decides alone. The bastion hears
nothing: it is at work while a node answers at its ssh port.

Usage: idle CLUSTER SECONDS [FILE]; FILE has the nodes' addresses, and only the bastion has it.
"""

from __future__ import annotations

import re
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PORT = 7871
HOSTS = "/etc/hosts"
CONNECTIONS = ("/proc/net/tcp", "/proc/net/tcp6")
SET_UP = "/run/cloud-init/result.json"
"""cloud-init writes it at the end of each boot, also when it failed."""
SSH_PORT = 22
AT_WORK = 5
"""Percent: a GPU that computes less is not at work. An idle one may show 1 for a display."""
LONGEST_PAUSE_S = 30.0


class Idleness:
    """How long nothing has been at work, on a clock that nobody sets: pure, times in seconds."""

    def __init__(self, limit_s: float, now: float) -> None:
        self.limit_s = limit_s
        self._since = now

    def note_work(self, now: float) -> None:
        """Remember that something is at work now."""
        self._since = max(self._since, now)

    def is_over(self, now: float) -> bool:
        """Return whether nothing was at work for the whole limit."""
        return now - self._since >= self.limit_s

    def pause_s(self, now: float) -> float:
        """Return the seconds until the next check: several in each limit, one at its end."""
        left = self.limit_s - (now - self._since)
        return max(0.0, min(LONGEST_PAUSE_S, self.limit_s / 8, left))


def peers(hosts: str) -> list[str]:
    """Return the addresses of the cluster's nodes that gpuctl wrote into /etc/hosts."""
    block = re.search(r"^# gpuctl: nodes\n(.*?)^# gpuctl: end$", hosts, re.MULTILINE | re.DOTALL)
    return [line.split()[0] for line in block[1].splitlines() if line.strip()] if block else []


def has_login(table: str) -> bool:
    """Return whether a table of /proc/net/tcp has an established connection to this sshd."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and int(fields[1].rpartition(":")[2], 16) == SSH_PORT:
            return True
    return False


def gpus_work(output: str) -> bool:
    """Return whether a GPU is at work; `output` is nvidia-smi's, a percentage for each GPU."""
    return any(int(word) >= AT_WORK for word in output.split() if word.isdigit())


def _output(*command: str) -> str:
    """Return what a command prints; nothing if it does not exist, fails or hangs."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def is_at_work(nodes: str | None) -> bool:
    """Return whether this machine has a set-up, a login, a run or a GPU at work.

    A bastion is at work while one of the `nodes`, addresses in that file, answers at its ssh port.
    """
    if not Path(SET_UP).exists() or any(has_login(_read(path)) for path in CONNECTIONS):
        return True
    if nodes is not None:
        return any(_answers(address) for address in _read(nodes).split())
    runs = ("list-units", "--plain", "--no-legend", "--state=active,activating", "gpuctl-run-*")
    if _output("systemctl", *runs).strip():
        return True
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    return gpus_work(_output("nvidia-smi", *query))


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, SSH_PORT), timeout=3).close()
    except OSError:
        return False
    return True


def watch(cluster: str, limit_s: float, nodes: str | None) -> None:
    """Return when the cluster has been idle for `limit_s`."""
    message = f"gpuctl: {cluster} is at work".encode()
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.bind(("", PORT))
    idleness = Idleness(limit_s, time.monotonic())
    while True:
        if is_at_work(nodes):
            idleness.note_work(time.monotonic())
            for address in [] if nodes else peers(_read(HOSTS)):
                with suppress(OSError):  # the others hear of the next one, or end by themselves
                    channel.sendto(message, (address, PORT))
        elif idleness.is_over(time.monotonic()):
            return
        wake = time.monotonic() + max(1.0, idleness.pause_s(time.monotonic()))
        while (left := wake - time.monotonic()) > 0 and select.select([channel], [], [], left)[0]:
            if channel.recv(1024) == message:
                idleness.note_work(time.monotonic())


if __name__ == "__main__":
    watch(sys.argv[1], float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    subprocess.run(["systemctl", "poweroff"], check=True)
