"""A cluster's nodes as they exist: names, addresses, rank order."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from config.errors import InputError
from config.files import write_whole
from config.folded_names import expand, fold
from config.identifiers import ClusterName, InstanceId, NodeName, SshHost, SshUser
from config.models import Value

Word = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.:+~-]{0,127})?$")]
"""A name of a device, a place, a type or a version; empty if it is unknown."""
FolderPath = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_.][A-Za-z0-9_./-]{0,255})?$")]
"""The absolute path of a folder on nodes; empty without one."""
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1024)]
"""Devices or ranks of one node."""
_BASTION = "bastion"
REMOTE_ROOT = "/var/lib/gpuctl"
"""The folder with all of gpuctl's files on a node that root enters: `agent-HASH/`, `runs/RUN/`."""
OWN_MACHINES = "own-machines"
"""What is in place of an instance type for machines that people have (`hosts`)."""
ALL_NODES = "all"
"""The name that means every node."""


class Node(Value):
    """A GPU node. `slots` is the number of ranks that fit: its GPUs, or 1 for a type without GPUs.

    `public_ip` is empty if it has none. Bootstrap finds the following; each is empty if it is
    unknown: `efa` (interfaces), `hcas` (names of other RDMA devices and their link layer:
    `mlx5_0:InfiniBand`, `mlx5_bond_0:Ethernet`), `interface` (the one that has `private_ip`),
    `software` and its version (openmpi, podman, torch, …), `topology` (the network
    nodes above it as EC2 reports them, from the top). `proxy` is a command that becomes a
    connection to the node's ssh, instead of the inventory's; empty for none. The `instance_id` of
    a machine that EC2 does not have is its machine-id(5).
    """

    rank: int
    name: NodeName
    instance_id: InstanceId
    private_ip: SshHost
    gpus: Count
    slots: Count
    port: Port = 22
    public_ip: SshHost | Literal[""] = ""
    efa: Count = 0
    hcas: tuple[Word, ...] = ()
    interface: Word = ""
    software: dict[Word, Word] = Field(default_factory=dict)
    topology: tuple[Word, ...] = ()
    proxy: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The node as messages name it."""
        return f"{self.name} ({self.private_ip})"

    @property
    def address(self) -> str:
        """The address to connect to: through the bastion if there is one, else from the client."""
        return self.public_ip or self.private_ip


class Bastion(Value):
    """The machine through which ssh reaches the nodes: its address for the client, and its user."""

    instance_id: InstanceId
    address: SshHost
    user: SshUser = "gpuctl"
    port: Port = 22


class Replaced(Value):
    """A machine that `up` replaced before the cluster was ready, and why."""

    name: NodeName
    instance_id: InstanceId
    cause: str


class Inventory(Value):
    """A cluster that is ready for a run: `nodes` in rank order, node 0 is the head.

    `folder` holds `known_hosts` (pinned host keys of bastion and nodes) and, on the machine that
    made the cluster, `id_ed25519` (gpuctl's own key). ssh logs in to nodes as `user`, through the
    bastion if there is one. `is_spot`: AWS may reclaim the nodes. `proxy` is a command that,
    followed by a node's instance id, becomes a connection to the node's ssh; it is empty if nodes
    are reached by their addresses. `root_gib` is the size of a node's root volume, 0 if unknown.
    `shared` is the folder in which every node has the cluster's shared storage, empty without one,
    `remote_root` that of gpuctl's files there.
    AWS ends all nodes at the time `ends`; None if it is not known. `replaced` are the machines that
    the last `up` replaced (`capacity.spare_attempts`), in that order. `instance_type` is
    OWN_MACHINES for a file with `hosts`: region and zone are then empty.
    """

    cluster: ClusterName
    region: Word
    zone: Word
    instance_type: Word
    user: SshUser = "root"
    bastion: Bastion | None
    nodes: tuple[Node, ...]
    folder: Path
    is_spot: bool = False
    root_gib: int = 0
    shared: FolderPath = ""
    remote_root: FolderPath = REMOTE_ROOT
    proxy: tuple[str, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    ends: AwareDatetime | None = None

    @property
    def is_rented(self) -> bool:
        """Return whether gpuctl rents the nodes, so that it may also end and replace them."""
        return self.instance_type != OWN_MACHINES

    @property
    def is_root(self) -> bool:
        """Return whether gpuctl acts as root on the nodes."""
        return self.user == "root"

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Refuse a name of two machines: ssh's settings and runs find machines by their names."""
        names = [node.name for node in self.nodes]
        if len({_BASTION, *names}) != len(names) + 1:
            raise ValueError(f"two machines have one name: {', '.join(sorted(names))}")
        return self


def named_nodes(inventory: Inventory, names: str) -> tuple[Node, ...]:
    """Return the nodes of a folded text in its order: `node3`, `node[0-3,5]`, or `all`.

    Raises InputError for a name that the cluster does not have.
    """
    if names == ALL_NODES:
        return inventory.nodes
    by_name = {node.name: node for node in inventory.nodes}
    chosen = expand(names)
    for name in chosen:
        if name not in by_name:
            raise InputError(
                f"cluster {inventory.cluster} has no '{name}'",
                f"it has {fold(by_name)}, {ALL_NODES}",
            )
    return tuple(by_name[name] for name in chosen)


def save(inventory: Inventory, path: Path) -> None:
    """Write the inventory to `path` as JSON, whole or not at all."""
    write_whole(path, inventory.model_dump_json(indent=2))
