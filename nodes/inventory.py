"""A cluster's nodes as they are: who is there, where, in which order."""

from pathlib import Path

from pydantic import Field

from config.files import write_whole
from config.models import Value


class Node(Value):
    """A GPU node. `slots` is how many ranks fit: its GPUs, or 1 for a type without.

    `public_ip` is empty where it has none. What bootstrap found: `efa` interfaces, `hcas` (names of
    other RDMA devices and their link layer: `mlx5_0:InfiniBand`, `mlx5_bond_0:Ethernet`), the
    `interface` that has `private_ip`, `software` and its version (openmpi, mpich, intel, podman,
    docker), `topology`, the network nodes above it as EC2 tells them, from the top; empty where
    nobody knows.
    """

    rank: int
    name: str
    instance_id: str
    private_ip: str
    gpus: int
    slots: int
    port: int = 22
    public_ip: str = ""
    efa: int = 0
    hcas: tuple[str, ...] = ()
    interface: str = ""
    software: dict[str, str] = Field(default_factory=dict)
    topology: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where it is reached, by the bastion if there is one, else by the client."""
        return self.public_ip or self.private_ip


class Bastion(Value):
    """The way in: an address that the client reaches, and the user there."""

    instance_id: str
    address: str
    user: str = "gpuctl"
    port: int = 22


class Inventory(Value):
    """A cluster that is ready for a run: `nodes` in rank order, node 0 is the head.

    `folder` holds `id_ed25519` (the client's key) and `known_hosts` (pinned host keys of bastion
    and nodes). Nodes are entered as `user`, through the bastion where there is one. `is_spot`: AWS
    may take the nodes back. `proxy` is a command that, with a node's instance id behind it, becomes
    a connection to the node's ssh; empty where nodes are reached by their addresses.
    """

    cluster: str
    region: str
    zone: str
    instance_type: str
    user: str = "root"
    bastion: Bastion | None
    nodes: tuple[Node, ...]
    folder: Path
    is_spot: bool = False
    proxy: tuple[str, ...] = ()

    @property
    def gpus_total(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)


def save(inventory: Inventory, path: Path) -> None:
    """Write the inventory to `path` as JSON, whole or not at all."""
    write_whole(path, inventory.model_dump_json(indent=2))
