"""Settings with which OpenSSH's client connects as gpuctl does: ssh_config, known_hosts.

For ssh, scp, rsync and editors of the user each cluster has a file in `~/.ssh/gpuctl/`, and
`~/.ssh/config` includes that folder. A file names the cluster's folder in its first line: only the
cluster that wrote it changes or removes it.
"""

import re
import shlex
from pathlib import Path

from config.files import read_named_file, read_regular, write_whole
from nodes.identity import identity_lines, quoted_path
from nodes.inventory import Inventory, Node

KEEPALIVE_S = 15
"""Seconds between keepalives; three missed answers show a dead connection in a minute."""


def openssh_config(inventory: Inventory) -> str:
    """Return an ssh_config with which plain `ssh -F FILE node0` connects as gpuctl does.

    For `ProxyJump` ssh gives FILE to a shell as it is (ssh.c of OpenSSH 9.2): a path with a space
    or a `$` would break. gpuctl writes the command that ssh would run, with the path quoted.
    """
    jump = f"ssh -F {quoted_words([str(_config_file(inventory))])} -W '[%h]:%p' bastion"
    blocks = host_blocks(inventory, "", f"ProxyCommand {jump}")
    every = f"Host *\n{security_lines(inventory.folder)}  LogLevel ERROR\n"
    return "\n".join([*blocks, every])


def host_blocks(inventory: Inventory, prefix: str, jump: str) -> list[str]:
    """Return a Host block for each machine, whose name there begins with `prefix`.

    `jump` is the line of a node that is reached through the bastion.
    """
    bastion = inventory.bastion
    blocks = []
    if bastion is not None:
        blocks = [_host(f"{prefix}bastion", bastion.address, bastion.port, bastion.user)]
    for node in inventory.nodes:
        block = _host(f"{prefix}{node.name}", node.address, node.port, inventory.user)
        if proxy := proxy_command(inventory, node):
            block += f"  ProxyCommand {quoted_words(proxy)}\n"
        blocks.append(block if bastion is None else f"{block}  {jump}\n")
    return blocks


def security_lines(folder: Path) -> str:
    """Return the settings of all machines: the keys of both sides, and keepalives."""
    return (
        f"{identity_lines(folder)}"
        f"  UserKnownHostsFile {quoted_path(folder / 'known_hosts')}\n"
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  PreferredAuthentications publickey\n"
        f"  ServerAliveInterval {KEEPALIVE_S}\n"
    )


def write_openssh_config(inventory: Inventory) -> Path:
    """Write the ssh_config into the cluster's folder, and return its path."""
    path = _config_file(inventory)
    write_whole(path, openssh_config(inventory))
    return path


def _config_file(inventory: Inventory) -> Path:
    return inventory.folder / "ssh_config"


def proxy_command(inventory: Inventory, node: Node) -> list[str]:
    """Return the command that connects to the node's ssh, or [] if the node's address is used."""
    if node.proxy:
        return list(node.proxy)
    return [*inventory.proxy, node.instance_id] if inventory.proxy else []


def known_hosts_name(address: str, port: int) -> str:
    """Return an address as known_hosts writes it: bare for port 22, else `[address]:port`."""
    return address if port == 22 else f"[{address}]:{port}"


def quoted_words(words: list[str]) -> str:
    """Return a command as ssh_config takes it: for the shell, with `%` escaped."""
    return shlex.join(words).replace("%", "%%")


def _host(name: str, address: str, port: int, user: str) -> str:
    return f"Host {name}\n  HostName {address}\n  Port {port}\n  User {user}\n"


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
