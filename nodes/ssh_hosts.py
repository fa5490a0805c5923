"""Hosts of clusters in the user's own ssh settings, for ssh, scp, rsync and editors.

Each cluster has a file in `~/.ssh/gpuctl/`, and `~/.ssh/config` includes that folder. A file names
the cluster's folder in its first line: only the cluster that wrote it changes or removes it.
"""

import re
from pathlib import Path

from config.files import read_named_file, read_regular, write_whole
from nodes.identity import quoted_path
from nodes.inventory import Inventory
from nodes.openssh import host_blocks, security_lines


def user_config() -> Path:
    """Return the path of the user's ssh settings."""
    return Path.home() / ".ssh" / "config"


def hosts_file(cluster: str) -> Path:
    """Return the path of the cluster's file."""
    return Path.home() / ".ssh" / "gpuctl" / f"{cluster}.conf"


def hosts_text(inventory: Inventory) -> str:
    """Return a Host block for each machine, `demo-node0` and so on, and one for all of them."""
    cluster = inventory.cluster
    names = [f"{cluster}-{node.name}" for node in inventory.nodes]
    if inventory.bastion is not None:
        names.append(f"{cluster}-bastion")
    blocks = host_blocks(inventory, f"{cluster}-", f"ProxyJump {cluster}-bastion")
    every = f"Host {' '.join(names)}\n{security_lines(inventory.folder)}"
    return "\n".join([_first_line(inventory.folder), *blocks, every])


def write_hosts(inventory: Inventory) -> Path:
    """Write the cluster's file, and return its path."""
    path = hosts_file(inventory.cluster)
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(path, hosts_text(inventory))
    return path


def refresh_hosts(inventory: Inventory) -> None:
    """Write the cluster's file anew if it has one: nodes that were replaced have new addresses."""
    if has_hosts(inventory.cluster, inventory.folder):
        write_hosts(inventory)


def remove_hosts(cluster: str, folder: Path) -> bool:
    """Remove the file of the cluster with this folder; return whether there was one."""
    if not has_hosts(cluster, folder):
        return False
    hosts_file(cluster).unlink()
    return True


def has_hosts(cluster: str, folder: Path) -> bool:
    """Return whether the cluster with this folder has written a file."""
    try:
        text = hosts_file(cluster).read_text()
    except OSError:
        return False
    return text.startswith(_first_line(folder))


def include_line() -> str:
    """Return the line of the user's ssh settings that includes all clusters' files."""
    return f'Include {quoted_path(hosts_file("*").parent)[:-1]}/*.conf"'


def has_include(config: Path) -> bool:
    """Return whether the settings include the clusters' files before their first Host or Match."""
    try:
        text = read_regular(config).decode(errors="replace")
    except OSError:
        return False
    above = re.split(r"^\s*(?:Host|Match)\s", text, maxsplit=1, flags=re.MULTILINE | re.IGNORECASE)
    return include_line() in above[0].splitlines()


def add_include(config: Path) -> None:
    """Put the line above everything else: below a Host it would count for that host alone."""
    # The file may be a link into a folder of dotfiles, which stays a link.
    path = config.resolve()
    before = read_named_file(path, "correct it").decode() if path.exists() else ""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, f"{include_line()}\n{before}")


def _first_line(folder: Path) -> str:
    return f"# Written by gpuctl for the cluster in {folder}\n"
