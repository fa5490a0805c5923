"""What gpuctl writes on machines that people have, and how it removes exactly that again.

Both are scripts of sh for root. In files that exist gpuctl adds lines at the top, between two
marks; everything else in them stays as it is, byte by byte.
"""

import shlex
from collections.abc import Sequence

from nodes.inventory import Node
from nodes.openssh import known_hosts_name
from provision.setup.nodes_key import NodesKey

FOLDER = "/var/lib/gpuctl"
SETTINGS = "/etc/ssh/ssh_config.d/50-gpuctl.conf"
HOSTS = "/etc/hosts"
RUNTIME = "/run/gpuctl"
_BEGIN, _END = "# gpuctl: nodes", "# gpuctl: end"
_KEY = f"{FOLDER}/ssh/id_ed25519"
_KNOWN = f"{FOLDER}/ssh/known_hosts"


def described(home: str) -> tuple[tuple[str, str], ...]:
    """Return the path of everything that gpuctl writes on a machine, and what it is for."""
    return (
        (f"{home}/.ssh/authorized_keys", "two public keys of this cluster, in lines at its top"),
        (HOSTS, "the nodes' names, in lines at its top"),
        (SETTINGS, "ssh from node to node, with a key of this cluster"),
        (FOLDER, "that key, and the code, logs and outputs of runs"),
        (f"{RUNTIME}, /run/systemd/system", "of runs: sockets and units, until the next boot"),
    )


# $written has the files and folders that did not exist before. A file is replaced whole, so that
# nobody is locked out by a full disk; one that is mounted by itself, as /etc/hosts in containers,
# keeps its place.
_FUNCTIONS = f"""\
set -eu
umask 077
written={FOLDER}/written
without_ours() {{ sed '/^{_BEGIN}$/,/^{_END}$/d' "$1"; }}
place() {{
  mv -f "$1.gpuctl" "$1" 2> /dev/null || {{ cat "$1.gpuctl" > "$1"; rm -f "$1.gpuctl"; }}
}}
"""

_WRITE = """\
add_folder() {
  if [ -d "$1" ]; then return; fi
  mkdir -p "$1"
  chmod "$2" "$1"
  echo "$1" >> "$written"
}
put_first() {
  file=$(readlink -f "$1")
  [ -e "$file" ] || { : > "$file"; chmod "$2" "$file"; echo "$file" >> "$written"; }
  cp -a "$file" "$file.gpuctl"
  { printf '%s\\n' "$3"; without_ours "$file"; } > "$file.gpuctl"
  place "$file"
}
give() {
  printf '%s' "$3" > "$2.gpuctl"
  chmod "$1" "$2.gpuctl"
  mv -f "$2.gpuctl" "$2"
}
"""

_REMOVE = f"""\
remove_ours() {{
  file=$(readlink -f "$1")
  [ -e "$file" ] || return 0
  grep -qx '{_BEGIN}' "$file" || return 0
  cp -a "$file" "$file.gpuctl"
  without_ours "$file" > "$file.gpuctl"
  place "$file"
}}
systemctl stop 'gpuctl-run-*' 'gpuctl-runs.target' 2> /dev/null || true
for socket in {RUNTIME}/ssh-*; do
  [ ! -S "$socket" ] || ssh -S "$socket" -O exit gpuctl 2> /dev/null || true
done
created=$(cat "$written" 2> /dev/null || true)
rm -f {SETTINGS} /run/systemd/system/gpuctl-runs.target
rm -f /run/systemd/system/session-.scope.d/gpuctl.conf
rmdir /run/systemd/system/session-.scope.d 2> /dev/null || true
systemctl daemon-reload
remove_ours {HOSTS}
remove_ours "$home/.ssh/authorized_keys"
# What gpuctl made is removed if nobody has put anything into it since; files before folders.
printf '%s\\n' "$created" | sort -r | while read -r path; do
  if [ -d "$path" ]; then rmdir "$path" 2> /dev/null || true
  elif [ -f "$path" ] && [ ! -s "$path" ]; then rm -f "$path"; fi
done
# Last, because it has the mark: a removal that was interrupted can be repeated.
rm -rf --one-file-system {RUNTIME} {FOLDER}
"""


def writing(
    node: Node,
    nodes: Sequence[Node],
    names: Sequence[str],
    home: str,
    mark: str,
    keys: tuple[str, NodesKey],
    known: Sequence[tuple[int, str]],
) -> str:
    """Return the script that writes everything on a node.

    `names` are the nodes' own host names, `known` the ports and keys of their sshds, both in rank
    order. `mark` is the line that says of which cluster the node is. `keys` are the client's public
    key and that between the nodes.
    """
    client, between = keys
    accepted = f"{_BEGIN}\n{client}\n{between.public}\n{_END}"
    hosts = "".join(
        f"{other.private_ip} {' '.join(dict.fromkeys((other.name, name)))}\n"
        for other, name in zip(nodes, names, strict=True)
    )
    settings, known_hosts = _settings(nodes, known), _known_hosts(nodes, known)
    steps = [
        f"home={shlex.quote(home)}",
        _FUNCTIONS,
        _WRITE,
        f"mkdir -p {FOLDER}/ssh",
        _call("give", "644", f"{FOLDER}/cluster", f"{mark}\n"),
        _call("give", "600", _KEY, between.private),
        _call("give", "644", _KNOWN, known_hosts),
        f"chmod 755 {FOLDER}",
        "add_folder /etc/ssh/ssh_config.d 755",
        _call("give", "644", SETTINGS, settings),
        f"put_first {HOSTS} 644 {shlex.quote(f'{_BEGIN}{chr(10)}{hosts}{_END}')}",
        'add_folder "$home/.ssh" 700',
        f'put_first "$home/.ssh/authorized_keys" 600 {shlex.quote(accepted)}',
    ]
    return "\n".join(steps) + "\n"


def removal(cluster_id: str) -> str:
    """Return the script that removes it from a machine that is a node of this cluster.

    It prints `gpuctl: removed`, or `gpuctl: not ours` where there is nothing of this cluster.
    """
    return f"""\
home=$(getent passwd root | cut -d: -f6)
{_FUNCTIONS}
mark=$(cat {FOLDER}/cluster 2> /dev/null || true)
case $mark in {shlex.quote(cluster_id)}\\ *) ;; *) echo 'gpuctl: not ours'; exit 0 ;; esac
{_REMOVE}
echo 'gpuctl: removed'
"""


def _call(function: str, *words: str) -> str:
    return shlex.join((function, *words))


def _settings(nodes: Sequence[Node], known: Sequence[tuple[int, str]]) -> str:
    blocks = [
        f"Host {node.name} {node.private_ip}\n  Port {port}\n"
        for node, (port, _) in zip(nodes, known, strict=True)
    ]
    every = " ".join(f"{node.name} {node.private_ip}" for node in nodes)
    return "".join(blocks) + (
        f"Host {every}\n"
        f"  IdentityFile {_KEY}\n  IdentitiesOnly yes\n  BatchMode yes\n"
        f"  StrictHostKeyChecking yes\n  UserKnownHostsFile {_KNOWN}\n"
        "  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )


def _known_hosts(nodes: Sequence[Node], known: Sequence[tuple[int, str]]) -> str:
    return "".join(
        f"{known_hosts_name(node.name, port)},{known_hosts_name(node.private_ip, port)} {key}\n"
        for node, (port, key) in zip(nodes, known, strict=True)
    )
