"""Ssh connections from the head to the other nodes, reused by later runs.

A new connection takes more CPU time, at both ends, than the worker that it starts. OpenSSH's
multiplexing (ssh_config(5), ControlMaster) keeps one to each node for some minutes, in a systemd
scope, so that it outlives the run. Without such a connection ssh opens a new one.

When the head shuts down, the scope ends after the supervisors, which stop other nodes' jobs: they
are after network.target, it is before. systemd stops units in the opposite order (systemd.unit(5)).
"""

from __future__ import annotations

PERSIST_S = 600
CHECK_S = 5
MASTER_OPTIONS = ("-o", "ControlMaster=no", "-S", "/run/gpuctl/ssh-%h")
"""Ssh's options to use a shared connection, if any. Its socket is in memory, for root only."""
CONNECT_S = 10
SSH = ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
_SSH = " ".join(SSH)

# $1 is the address, the rest is ssh's command line. A master that does not answer is replaced: its
# node may have been replaced, or the connection may have broken while it was idle.
# ProxyCommand=false prevents the check from opening a new connection.
_LAUNCH = f"""\
address=$1; shift
socket=/run/gpuctl/ssh-$address
alive() {{ [ -S "$socket" ] && timeout {CHECK_S} {_SSH} -S "$socket" -o ProxyCommand=false \
  "root@$address" true; }}
if ! alive < /dev/null > /dev/null 2>&1; then
  timeout {CHECK_S} ssh -S "$socket" -O exit "root@$address" < /dev/null > /dev/null 2>&1
  rm -f "$socket"
  systemd-run --quiet --scope --collect --property=Before=network.target {_SSH} -fNM -S "$socket" \
    -o ControlPersist={PERSIST_S} "root@$address" < /dev/null > /dev/null 2> "$socket.err"
  if [ $? -eq 255 ]; then cat "$socket.err" >&2; exit 255; fi
fi
exec "$@"
"""


def ssh_to(ip: str, command: str) -> list[str]:
    """Return the command line that runs a shell command as root on another node of the cluster.

    It does not use ssh's keepalive, because the heartbeats detect nodes that do not answer.
    """
    return [*SSH, *MASTER_OPTIONS, f"root@{ip}", command]


def master_command(ip: str, words: list[str]) -> list[str]:
    """Return a command line that makes sure of a shared connection, then executes `words`."""
    return ["sh", "-c", _LAUNCH, "sh", ip, *words]
