"""Ssh connections from the head to the other nodes, kept from one run to the next.

A connection costs both of its ends more CPU time than the worker that it starts. OpenSSH's own
multiplexing (ssh_config(5), ControlMaster) keeps one to each node for some minutes, in a scope of
its own, so that it outlives the run. Whoever finds none connects as ever.
"""

from __future__ import annotations

PERSIST_S = 600
CHECK_S = 5
MULTIPLEXED = ("-o", "ControlMaster=no", "-S", "/run/gpuctl/ssh-%h")
"""Ssh's options to use a kept connection where there is one: in memory, root's alone."""
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"

# $1 is the address, the rest is ssh's command line. A master that does not answer is as good as
# none: its node may have been made again, or the way there have gone while nobody used it. Without
# a way of its own (ProxyCommand) the question is one to the master alone.
_LAUNCH = f"""\
address=$1; shift
socket=/run/gpuctl/ssh-$address
alive() {{ [ -S "$socket" ] && timeout {CHECK_S} {_SSH} -S "$socket" -o ProxyCommand=false \
  "root@$address" true; }}
if ! alive < /dev/null > /dev/null 2>&1; then
  timeout {CHECK_S} ssh -S "$socket" -O exit "root@$address" < /dev/null > /dev/null 2>&1
  rm -f "$socket"
  systemd-run --quiet --scope --collect {_SSH} -fNM -S "$socket" \
    -o ControlPersist={PERSIST_S} "root@$address" < /dev/null > /dev/null 2> "$socket.err"
  if [ $? -eq 255 ]; then cat "$socket.err" >&2; exit 255; fi
fi
exec "$@"
"""


def with_master(ip: str, words: list[str]) -> list[str]:
    """The command line that first sees to a kept connection with the node, then becomes `words`."""
    return ["sh", "-c", _LAUNCH, "sh", ip, *words]
