"""Settings with which OpenSSH's client connects as gpuctl does: ssh_config, known_hosts."""

import shlex
from pathlib import Path

from config.files import write_whole
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
