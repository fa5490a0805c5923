"""What gpuctl writes on machines that people have, and how it removes exactly that again.

Both are scripts of sh. In files that exist gpuctl adds lines at the top, between two marks;
everything else in them stays as it is, byte by byte. A user who is not root has all of it below one
folder, and two files in the home, which may be the same on several machines.
"""

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from config.identifiers import SSH_HOST, is_valid
from nodes.inventory import REMOTE_ROOT, Node
from nodes.openssh import known_hosts_name
from provision.setup.nodes_key import NodesKey

HOSTS = "/etc/hosts"
_BEGIN, _END = "# gpuctl: nodes", "# gpuctl: end"


@dataclass(frozen=True)
class Footprint:
    """The paths that gpuctl writes on a machine as `user`, whose home folder is `home`."""

    cluster_id: str
    user: str
    home: str

    @property
    def is_root(self) -> bool:
        """Return whether gpuctl acts as root there."""
        return self.user == "root"

    @property
    def folder(self) -> str:
        """The folder of everything that is gpuctl's alone.

        Not in the home, which may be on a file system that all machines share.
        """
        return REMOTE_ROOT if self.is_root else f"/var/tmp/gpuctl-{self.cluster_id}"  # noqa: S108

    @property
    def settings(self) -> str:
        """The file with the settings of ssh from node to node."""
        name = "/etc/ssh/ssh_config.d/50-gpuctl.conf"
        return name if self.is_root else f"{self.folder}/ssh/config"

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """Every path that is written, and what it is for."""
        keys = f"{self.home}/.ssh/authorized_keys"
        common = (
            (keys, "public keys of this cluster, in lines at its top"),
            (self.folder, "the key between nodes, and the code, logs and outputs of runs"),
        )
        if self.is_root:
            return (
                *common,
                (HOSTS, "the nodes' names, in lines at its top"),
                (self.settings, "ssh from node to node, with a key of this cluster"),
                (
                    "/run/gpuctl, /run/systemd/system",
                    "of runs: sockets and units, until the next boot",
                ),
            )
        return (
            *common,
            (f"{self.home}/.ssh/config", "ssh from node to node, in lines at its top"),
            ("/dev/shm/gpuctl-*", "of runs: sockets and plans, until the next boot"),  # noqa: S108
        )


_HOME = 'home=$(getent passwd "$(id -u)" | cut -d: -f6)'

# $written has the files and folders that did not exist before. A file is replaced whole, so that
# nobody is locked out by a full disk; one that is mounted by itself, as /etc/hosts in containers,
# keeps its place.
_FUNCTIONS = f"""\
set -eu
umask 077
written=$folder/written
part=gpuctl.$(uname -n).$$
memory=/dev/shm/gpuctl-$(id -u)
if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]; then memory=/run/gpuctl; fi
without_ours() {{ sed '/^{_BEGIN}$/,/^{_END}$/d' "$1"; }}
# Two people may write at once. $folder is this machine's alone.
lock() {{
  tries=0
  until mkdir "$folder/lock" 2> /dev/null; do
    tries=$((tries + 1))
    if [ "$tries" = 300 ]; then
      echo "another gpuctl has $folder/lock; remove it if none runs" >&2
      exit 1
    fi
    sleep 0.1
  done
  trap 'rmdir "$folder/lock" 2> /dev/null || true' EXIT
}}
place() {{
  mv -f "$1.$part" "$1" 2> /dev/null || {{ cat "$1.$part" > "$1"; rm -f "$1.$part"; }}
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
  cp -a "$file" "$file.$part"
  { printf '%s\\n' "$3"; without_ours "$file"; } > "$file.$part"
  place "$file"
}
give() {
  printf '%s' "$3" > "$2.$part"
  chmod "$1" "$2.$part"
  mv -f "$2.$part" "$2"
}
"""

# Every user of the machine may create names in /var/tmp, and the folder gets a private key.
_CHECK_OWNER = """\
mkdir "$folder" 2> /dev/null || true
if [ -L "$folder" ] || [ ! -d "$folder" ] || [ ! -O "$folder" ]; then
  echo "$folder is not this user's: root has to remove it" >&2
  exit 1
fi
"""

_REMOVE = f"""\
remove_ours() {{
  file=$(readlink -f "$1")
  [ -e "$file" ] || return 0
  grep -qx '{_BEGIN}' "$file" || return 0
  cp -a "$file" "$file.$part"
  without_ours "$file" > "$file.$part"
  place "$file"
}}
if [ $memory = /run/gpuctl ]; then
  systemctl stop 'gpuctl-run-*' 'gpuctl-runs.target' 2> /dev/null || true
  rm -f /run/systemd/system/gpuctl-runs.target
  rm -f /run/systemd/system/session-.scope.d/gpuctl.conf
  rmdir /run/systemd/system/session-.scope.d 2> /dev/null || true
  systemctl daemon-reload
else
  for agent in "$folder"/agent-*/__main__.py; do
    [ ! -e "$agent" ] || python3 -IS "$agent" end gpuctl-run- || true
    break
  done
fi
for socket in "$memory"/ssh-*; do
  [ ! -S "$socket" ] || ssh -S "$socket" -O exit gpuctl 2> /dev/null || true
done
created=$(cat "$written" 2> /dev/null || true)
[ "$(id -u)" != 0 ] || rm -f "$settings"
[ "$(id -u)" != 0 ] || remove_ours {HOSTS}
remove_ours "$home/.ssh/authorized_keys"
remove_ours "$home/.ssh/config"
# What gpuctl made is removed if nobody has put anything into it since; files before folders.
printf '%s\\n' "$created" | sort -r | while read -r path; do
  if [ -d "$path" ]; then rmdir "$path" 2> /dev/null || true
  elif [ -f "$path" ] && [ ! -s "$path" ]; then rm -f "$path"; fi
done
# Last, because it has the mark: a removal that was interrupted can be repeated.
rm -rf --one-file-system "$memory" "$folder"
"""


def writing(
    place: Footprint,
    nodes: Sequence[Node],
    names: Sequence[str],
    mark: str,
    keys: tuple[str, NodesKey],
    known: Sequence[tuple[int, str]],
) -> str:
    """Return the script that writes everything on a node; it is the same for all nodes.

    `names` are the nodes' own host names; one that another node has too is not written. `known` are
    the ports and keys of their sshds, both in rank order. `mark` is the line that says of which
    cluster the node is. `keys` are the client's public key and that between the nodes.
    """
    client, between = keys
    accepted = f'{_BEGIN}\n{between.public}\n$(cat "$folder"/people/*)\n{_END}'
    addresses = " ".join(node.private_ip for node in nodes)
    hosts = "".join(
        f"{other.private_ip} {' '.join((other.name, *own))}\n"
        for other, own in zip(nodes, _own_names(nodes, names), strict=True)
    )
    steps = [
        f"{_HOME}; folder={shlex.quote(place.folder)}",
        _FUNCTIONS,
        _WRITE,
        "" if place.is_root else _CHECK_OWNER,
        'mkdir -p "$folder/ssh" "$folder/people"',
        "lock",
        _call("give", "644", f"{place.folder}/cluster", f"{mark}\n{addresses}\n"),
        _call("give", "644", f"{place.folder}/people/{_person(client)}", f"{client}\n"),
        _call("give", "600", key_file(place), between.private),
        _call("give", "644", _known_hosts_file(place), _known_hosts(nodes, known)),
        'add_folder "$home/.ssh" 700',
        f'put_first "$home/.ssh/authorized_keys" 600 "{accepted}"',
    ]
    settings = _call("give", "644", place.settings, _settings(place, nodes, known))
    if place.is_root:
        steps += [
            'chmod 755 "$folder"',
            "add_folder /etc/ssh/ssh_config.d 755",
            settings,
            f"put_first {HOSTS} 644 {shlex.quote(f'{_BEGIN}{chr(10)}{hosts}{_END}')}",
        ]
    else:
        include = f"{_BEGIN}\nInclude {place.settings}\n{_END}"
        steps += [settings, f'put_first "$home/.ssh/config" 600 {shlex.quote(include)}']
    return "\n".join(steps) + "\n"


def removal(cluster_id: str, client: str) -> str:
    """Return the script that removes it from a machine that is a node of this cluster.

    `client` is the public key of the person, empty if there is none. While others use the cluster,
    it removes that key alone. It prints `gpuctl: removed`, `gpuctl: kept` if others do, or
    `gpuctl: not ours` where there is nothing of this cluster.
    """
    root, user = (Footprint(cluster_id, name, "") for name in ("root", "user"))
    return f"""\
{_HOME}
is_ours() {{ grep -q {shlex.quote(f"^{cluster_id} ")} "$1/cluster" 2> /dev/null; }}
folder={user.folder}
if is_ours {root.folder}; then
  [ "$(id -u)" = 0 ] || {{ echo 'root wrote it, and the login may not be root' >&2; exit 1; }}
  folder={root.folder} settings={root.settings}
fi
is_ours "$folder" || {{ echo 'gpuctl: not ours'; exit 0; }}
{_FUNCTIONS}
lock
rm -f "$folder/people/{_person(client)}"
if [ -n "$(ls "$folder/people" 2> /dev/null)" ]; then
  file=$(readlink -f "$home/.ssh/authorized_keys")
  cp -a "$file" "$file.$part"
  sed {shlex.quote(f"/^{_in_pattern(client)}$/d")} "$file" > "$file.$part"
  place "$file"
  echo 'gpuctl: kept'
  exit
fi
{_REMOVE}
echo 'gpuctl: removed'
"""


def _own_names(nodes: Sequence[Node], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each node's own host name; nothing for what is no name, or another node's too."""
    taken = Counter(["localhost", *names, *(node.name for node in nodes)])
    return [(name,) if is_valid(name, SSH_HOST) and taken[name] == 1 else () for name in names]


def _in_pattern(text: str) -> str:
    """Return the text as a pattern of sed between slashes; sed keeps a last line without an end."""
    return re.sub(r"([\\.*\[\]^$/])", r"\\\1", text or "-")


def _person(client: str) -> str:
    """Return the name of the file with a person's public key."""
    return hashlib.sha256(client.encode()).hexdigest()[:12]


def _call(function: str, *words: str) -> str:
    return shlex.join((function, *words))


def key_file(place: Footprint) -> str:
    """Return the path of the private key between the nodes."""
    return f"{place.folder}/ssh/id_ed25519"


def _known_hosts_file(place: Footprint) -> str:
    return f"{place.folder}/ssh/known_hosts"


def _settings(place: Footprint, nodes: Sequence[Node], known: Sequence[tuple[int, str]]) -> str:
    blocks = [
        f"Host {node.name} {node.private_ip}\n  HostName {node.private_ip}\n  Port {port}\n"
        for node, (port, _) in zip(nodes, known, strict=True)
    ]
    every = " ".join(f"{node.name} {node.private_ip}" for node in nodes)
    return "".join(blocks) + (
        f"Host {every}\n  User {place.user}\n"
        f"  IdentityFile {key_file(place)}\n  IdentitiesOnly yes\n  BatchMode yes\n"
        f"  StrictHostKeyChecking yes\n  UserKnownHostsFile {_known_hosts_file(place)}\n"
        "  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )


def _known_hosts(nodes: Sequence[Node], known: Sequence[tuple[int, str]]) -> str:
    return "".join(
        f"{known_hosts_name(node.name, port)},{known_hosts_name(node.private_ip, port)} {key}\n"
        for node, (port, key) in zip(nodes, known, strict=True)
    )
