"""The keys that a cluster's machines accept: the client's, and the one between nodes.

The nodes' key is not the client's: a node cannot enter the bastion. Every node has the private key
in root's `~/.ssh`, and new nodes accept it from their first boot. So it also opens new nodes to a
colleague's machine, which has no other key that they accept; it reads it from an older node.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from config.cluster.resolved import Resolved
from config.errors import GpuctlError, InputError, NodeError
from config.event_loop import run_in_loop
from config.target import Target
from nodes.identity import cluster_key, has_cluster_key
from nodes.inventory import Inventory, Node
from nodes.keys import ensure_key, public_of
from nodes.login import login_options
from nodes.ssh import Connections, connect
from provision.state.shared import cluster_folder

GRANTED = "(granted by gpuctl)"
"""The end of a granted key's line in authorized_keys, where its comment is."""

_ASK = f"cat ~/.ssh/id_ed25519 && {{ grep ' {GRANTED}$' ~/.ssh/authorized_keys || true; }}"
_PATIENCE_S = 30


@dataclass(frozen=True)
class NodesKey:
    """The private key in OpenSSH's format, and the line of the public key.

    `granted` are lines of authorized_keys: what colleagues log in with. It is empty unless the key
    `is_from_node`.
    """

    private: str
    public: str
    granted: tuple[str, ...] = ()
    is_from_node: bool = False


def nodes_key_path(folder: Path) -> Path:
    """Return the path of this machine's copy of the key between the nodes."""
    return folder / "nodes_ed25519"


def ensure_nodes_key(folder: Path, cluster: str) -> NodesKey:
    """Return this machine's key for the nodes; make it if it is not there."""
    path = nodes_key_path(folder)
    public = ensure_key(path, f"gpuctl {cluster} nodes")
    return NodesKey(path.read_text(encoding="ascii"), public)


def nodes_key(inventory: Inventory, public: str) -> NodesKey:
    """Return the key of the cluster's nodes; on a colleague's machine, one of the nodes gives it.

    `public` is the key in the nodes' user data. Raises InputError if no node gives the key.
    """
    if has_cluster_key(inventory.folder):
        return ensure_nodes_key(inventory.folder, inventory.cluster)
    return run_in_loop(_read(inventory, public))


async def _read(inventory: Inventory, public: str) -> NodesKey:
    if not inventory.nodes:
        raise _refusal(inventory, "it has no other nodes")
    login_options(inventory)  # without any key its own error says what to do
    try:
        async with connect(inventory) as connections:
            return await ask_for_nodes_key(connections, inventory, public)
    except NodeError as error:  # the bastion does not answer
        raise _refusal(inventory, error.message) from error


async def ask_for_nodes_key(
    connections: Connections, inventory: Inventory, public: str
) -> NodesKey:
    """Ask all nodes, and return the first answer that has the key; InputError if none has."""
    why = ""

    async def ask(node: Node) -> NodesKey:
        done = await connections.run(node, _ASK, timeout=_PATIENCE_S)
        if done.exit_status != 0:
            raise NodeError(f"{node.name}: {done.complaint}", "")
        return _parsed(node, done.stdout, public)

    asking = [asyncio.create_task(ask(node)) for node in inventory.nodes]
    try:
        for answer in asyncio.as_completed(asking):
            try:
                return await answer
            except GpuctlError as error:
                why = error.message
    finally:
        for task in asking:
            task.cancel()
        # What the others answered, or could not, matters no more.
        await asyncio.gather(*asking, return_exceptions=True)
    raise _refusal(inventory, why)


def _refusal(inventory: Inventory, why: str) -> InputError:
    return InputError(
        f"new machines of cluster {inventory.cluster} cannot be opened from this machine: no node"
        f" gives it the nodes' key: {why}",
        "run this command on the machine that created the cluster",
    )


def _parsed(node: Node, text: str, public: str) -> NodesKey:
    private, end, granted = text.partition("-----END OPENSSH PRIVATE KEY-----\n")
    if public_of(private + end).split()[:2] != public.split()[:2]:
        raise NodeError(f"{node.name}: its ~/.ssh/id_ed25519 is not the key of the nodes", "")
    return NodesKey(private + end, public, tuple(granted.splitlines()), is_from_node=True)


def public_keys(
    name: str, before: Resolved | None, target: Target, *, refresh: bool
) -> tuple[str, str]:
    """Return the public key of the cluster, and that of its nodes; make those of a new cluster.

    On a colleague's machine, which has no private key of the cluster, they are the record's. The
    nodes' one is in the user data of nodes, and is the record's too unless `refresh`: other user
    data replace every node.
    """
    place = cluster_folder(name, target)
    if before is not None and not has_cluster_key(place):
        return before.public_key, before.nodes_public_key
    public = ensure_key(cluster_key(place), f"gpuctl {name}")
    if before is not None and not refresh:
        return public, before.nodes_public_key
    return public, ensure_nodes_key(place, name).public
