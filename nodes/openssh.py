"""Settings with which OpenSSH's client connects as gpuctl does: ssh_config, known_hosts."""

import shlex
from pathlib import Path

from config.files import write_whole
from nodes.identity import identity_lines, quoted_path
from nodes.inventory import Inventory, Node

KEEPALIVE_S = 15
"""Seconds between keepalives; three missed answers show a dead connection in a minute."""


def openssh_config(inventory: Inventory) -> str:
    """Return an ssh_config with which plain `ssh -F FILE node0` connects as gpuctl does."""
    bastion, folder = inventory.bastion, inventory.folder
    blocks = []
    if bastion is not None:
        blocks = [_host("bastion", bastion.address, bastion.port, bastion.user)]
    for node in inventory.nodes:
        block = _host(node.name, node.address, node.port, inventory.user)
        if proxy := proxy_command(inventory, node):
            block += f"  ProxyCommand {quoted_words(proxy)}\n"
        blocks.append(block if bastion is None else f"{block}  ProxyJump bastion\n")
    blocks.append(
        "Host *\n"
        f"{identity_lines(folder)}"
        f"  UserKnownHostsFile {quoted_path(folder / 'known_hosts')}\n"
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  PreferredAuthentications publickey\n"
        f"  ServerAliveInterval {KEEPALIVE_S}\n"
        "  LogLevel ERROR\n"
    )
    return "\n".join(blocks)


def write_openssh_config(inventory: Inventory) -> Path:
    """Write the ssh_config into the cluster's folder, and return its path."""
    path = inventory.folder / "ssh_config"
    write_whole(path, openssh_config(inventory))
    return path


def proxy_command(inventory: Inventory, node: Node) -> list[str]:
    """Return the command that connects to the node's ssh, or [] if the node's address is used."""
    return [*inventory.proxy, node.instance_id] if inventory.proxy else []


def known_hosts_name(address: str, port: int) -> str:
    """Return an address as known_hosts writes it: bare for port 22, else `[address]:port`."""
    return address if port == 22 else f"[{address}]:{port}"


def quoted_words(words: list[str]) -> str:
    """Return a command as ssh_config takes it: for the shell, with `%` escaped."""
    return shlex.join(words).replace("%", "%%")


def _host(name: str, address: str, port: int, user: str) -> str:
    return f"Host {name}\n  HostName {address}\n  Port {port}\n  User {user}\n"
