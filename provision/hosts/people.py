"""The people who use a cluster of hosts: each has a key on its nodes, whose comment names them."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from config.errors import GpuctlError
from config.event_loop import run_in_loop
from nodes.answers import Completed
from nodes.fanout import on_each
from nodes.identity import cluster_key
from nodes.inventory import Inventory, Node
from nodes.kept_connections import connect

ASK_S = 10.0

Answers = Mapping[int, Completed | GpuctlError]


def other_people(inventory: Inventory) -> tuple[str, ...]:
    """Return who else uses the cluster, as far as its nodes answer."""
    keys = keys_in(run_in_loop(ask_for_keys(inventory)))
    return names_of(keys - {own_key(inventory.folder)})


async def ask_for_keys(inventory: Inventory) -> Answers:
    """Ask each node for the keys of the people; return its answer or its error by rank."""
    command = f"cat {shlex.quote(inventory.remote_root)}/people/* 2> /dev/null; true"

    async def ask(node: Node) -> Completed:
        return await connections.run(node, command, timeout=ASK_S)

    async with connect(inventory) as connections:
        return await on_each(inventory.nodes, ask)


def keys_in(answers: Answers) -> frozenset[str]:
    """Return the public keys that any node has."""
    texts = [each.stdout for each in answers.values() if isinstance(each, Completed)]
    return frozenset(line for text in texts for line in text.splitlines() if line[:4] == "ssh-")


def names_of(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the people with these keys, as `USER@MACHINE`."""
    return tuple(sorted(key.partition(" of ")[2] or "somebody" for key in keys))


def own_key(folder: Path) -> str:
    """Return the public key of the person with this folder of the cluster; empty without one."""
    path = cluster_key(folder).with_suffix(".pub")
    return path.read_text().strip() if path.exists() else ""
