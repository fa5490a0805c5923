"""Ssh connections from the head to the other nodes, reused by later runs.

A new connection takes more CPU time, at both ends, than the worker that it starts. OpenSSH's
multiplexing (ssh_config(5), ControlMaster) keeps one to each node for some minutes, in a systemd
scope, so that it outlives the run. Without such a connection ssh opens a new one.

When the head shuts down, the scope ends after the supervisors, which stop other nodes' jobs: they
are after network.target, it is before. systemd stops units in the opposite order (systemd.unit(5)).
Without systemd the connection ends with the run.
"""

from __future__ import annotations

import os
import pwd

from engine.agent.journal.memory_folder import memory_folder
from engine.agent.link.units import BY_SYSTEMD

PERSIST_S = 600
CHECK_S = 5
CONNECT_S = 10
SSH = ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
_SSH = " ".join(SSH)
_SCOPE = "systemd-run --quiet --scope --collect --property=Before=network.target"

# $1 is the login, $2 the socket, the rest is ssh's command line. A master that does not answer is
# replaced: its node may have been replaced, or the connection may have broken while it was idle.
# ProxyCommand=false prevents the check from opening a new connection.
_LAUNCH = f"""\
address=$1; socket=$2; shift 2
alive() {{ [ -S "$socket" ] && timeout {CHECK_S} {_SSH} -S "$socket" -o ProxyCommand=false \
  "$address" true; }}
if ! alive < /dev/null > /dev/null 2>&1; then
  timeout {CHECK_S} ssh -S "$socket" -O exit "$address" < /dev/null > /dev/null 2>&1
  rm -f "$socket"
  keep=
  if {BY_SYSTEMD}; then keep="{_SCOPE}"; fi
  $keep {_SSH} -fNM -S "$socket" \
    -o ControlPersist={PERSIST_S} "$address" < /dev/null > /dev/null 2> "$socket.err"
  if [ $? -eq 255 ]; then cat "$socket.err" >&2; exit 255; fi
fi
exec "$@"
"""


def ssh_to(ip: str, command: str) -> list[str]:
    """Return the command line that runs a shell command on another node of the cluster.

    It does not use ssh's keepalive, because the heartbeats detect nodes that do not answer.
    """
    return [*SSH, "-o", "ControlMaster=no", "-S", _socket("%h"), node_login(ip), command]


def master_command(ip: str, words: list[str]) -> list[str]:
    """Return a command line that makes sure of a shared connection, then executes `words`."""
    return ["sh", "-c", _LAUNCH, "sh", node_login(ip), _socket(ip), *words]


def node_login(ip: str) -> str:
    """Return how ssh logs in to another node: as this user, whatever ssh_config says."""
    return f"{pwd.getpwuid(os.geteuid()).pw_name}@{ip}"


def _socket(host: str) -> str:
    """Return the path of a shared connection's socket: in memory, for this user only."""
    return str(memory_folder() / f"ssh-{host}")
