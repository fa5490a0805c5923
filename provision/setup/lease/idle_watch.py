"""Powers this machine off when its cluster has been idle: a program on each machine.

It runs on every node and on the bastion, with the standard library of Python 3.9, and asks nobody
outside of the cluster. A node that is at work says so to all other nodes, in a datagram. A node
that neither works nor hears of work for the whole limit powers off. A message can only prolong:
whoever forges one ends nothing. With a cut network each node decides alone. The bastion hears
nothing: it is at work while a node answers at its ssh port.

A question that is not answered may hide work: the machine counts as at work.

Usage: idle CLUSTER SECONDS ROLE; ROLE is `gpus` or `cpus` on a node, by what its type has. On the
bastion it is a file with the nodes' addresses.
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
ANSWER_S = 20.0
GPUS = "gpus"


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


def gpus_work(answer: str | None) -> bool:
    """Return whether a GPU may be at work; `answer` is nvidia-smi's, a percentage for each GPU.

    Without an answer one may be, and so may one without a percentage: NVML has none in MIG mode
    (nvmlDeviceGetUtilizationRates, https://docs.nvidia.com/deploy/nvml-api, 2026-11-26).
    """
    if answer is None:
        return True
    return any(not word.isdigit() or int(word) >= AT_WORK for word in answer.split())


class Question:
    """A command that is asked again and again. One that hangs is not started a second time."""

    def __init__(self, *command: str, answer_s: float = ANSWER_S) -> None:
        self._command, self._answer_s = command, answer_s
        self._hung: subprocess.Popen[str] | None = None

    def answer(self) -> str | None:
        """Return what the command prints, nothing if this machine does not have it.

        None if it fails, or does not end in time. A program that hangs in a driver may not even end
        when it is killed.
        """
        if self._hung is not None:
            if self._hung.poll() is None:
                return None
            self._hung.communicate()  # closes its pipe
            self._hung = None
        try:
            process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except FileNotFoundError:
            return ""
        except OSError:
            return None
        try:
            output, _ = process.communicate(timeout=self._answer_s)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.communicate(timeout=1)
            except subprocess.TimeoutExpired:
                self._hung = process
            return None
        return output if process.returncode == 0 else None


_RUNS = Question(
    "systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", "gpuctl-run-*"
)
_LOAD = Question("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def is_at_work(role: str) -> bool:
    """Return whether this machine has a set-up, a login, a run or a GPU at work.

    A bastion is at work while one of the nodes answers at its ssh port. Their addresses are in the
    file `role`.
    """
    if not Path(SET_UP).exists() or any(has_login(_read(path)) for path in CONNECTIONS):
        return True
    if _is_file(role):
        return any(_answers(address) for address in _read(role).split())
    runs = _RUNS.answer()
    if runs is None or runs.strip():
        return True
    return role == GPUS and gpus_work(_LOAD.answer())


def _is_file(role: str) -> bool:
    return role.startswith("/")


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, SSH_PORT), timeout=3).close()
    except OSError:
        return False
    return True


def watch(cluster: str, limit_s: float, role: str) -> None:
    """Return when the cluster has been idle for `limit_s`."""
    message = f"gpuctl: {cluster} is at work".encode()
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.bind(("", PORT))
    idleness = Idleness(limit_s, time.monotonic())
    while True:
        if is_at_work(role):
            idleness.note_work(time.monotonic())
            for address in [] if _is_file(role) else peers(_read(HOSTS)):
                with suppress(OSError):  # the others hear of the next one, or end by themselves
                    channel.sendto(message, (address, PORT))
        elif idleness.is_over(time.monotonic()):
            return
        wake = time.monotonic() + max(1.0, idleness.pause_s(time.monotonic()))
        while (left := wake - time.monotonic()) > 0 and select.select([channel], [], [], left)[0]:
            if channel.recv(1024) == message:
                idleness.note_work(time.monotonic())


if __name__ == "__main__":
    watch(sys.argv[1], float(sys.argv[2]), sys.argv[3])
    subprocess.run(["systemctl", "start", "--no-block", "gpuctl-lifetime.service"], check=True)
