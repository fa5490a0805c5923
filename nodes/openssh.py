"""Settings with which OpenSSH's client connects as gpuctl does: ssh_config, known_hosts."""

import shlex
from pathlib import Path

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
            block += f"  ProxyCommand {shlex.join(proxy).replace('%', '%%')}\n"
        blocks.append(block if bastion is None else f"{block}  ProxyJump bastion\n")
    blocks.append(
        "Host *\n"
        f"  IdentityFile {_quoted(folder / 'id_ed25519')}\n"
        "  IdentitiesOnly yes\n"
        "  IdentityAgent none\n"
        f"  UserKnownHostsFile {_quoted(folder / 'known_hosts')}\n"
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  PreferredAuthentications publickey\n"
        f"  ServerAliveInterval {KEEPALIVE_S}\n"
        "  LogLevel ERROR\n"
    )
    return "\n".join(blocks)


def proxy_command(inventory: Inventory, node: Node) -> list[str]:
    """Return the command that connects to the node's ssh, or [] if the node's address is used."""
    return [*inventory.proxy, node.instance_id] if inventory.proxy else []


def known_hosts_name(address: str, port: int) -> str:
    """Return an address as known_hosts writes it: bare for port 22, else `[address]:port`."""
    return address if port == 22 else f"[{address}]:{port}"


def _host(name: str, address: str, port: int, user: str) -> str:
    return f"Host {name}\n  HostName {address}\n  Port {port}\n  User {user}\n"


def _quoted(path: Path) -> str:
    """Return a path as ssh_config takes it: quoted, with `%` escaped so that it is not a token."""
    return '"' + str(path).replace("%", "%%") + '"'
