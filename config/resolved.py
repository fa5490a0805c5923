"""A cluster in which nothing is left open: what the program and the plan are made of."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from config.cluster import Cluster


class Value(BaseModel):
    """A value that gpuctl made and stores as JSON: read tolerantly, never changed."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class NetworkCard(Value):
    """A network card of an instance type, from DescribeInstanceTypes' NetworkInfo.NetworkCards.

    `interface_types` is EC2's InterfaceTypes of the card (`interface`, `efa`, `efa-only`); empty
    where the API gives none.
    """

    index: int
    max_interfaces: int
    interface_types: tuple[str, ...] = ()


class InstanceType(Value):
    """What EC2 says of an instance type. `price_usd_h` is on-demand, None where unknown."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: int
    gpu_model: str
    architecture: str
    max_efa: int
    cards: tuple[NetworkCard, ...]
    price_usd_h: float | None = None


class Interface(Value):
    """One network interface of a node, at launch; the first is card 0, device 0, `interface`."""

    card: int
    device: int
    type: Literal["interface", "efa-only"]


class Image(Value):
    """An AMI, resolved: pinned in the plan."""

    id: str
    name: str
    root_device: str
    architecture: str
    has_software: bool
    """Whether it claims to bring Open MPI and nccl-tests (a DLAMI), so that it is only verified."""


class Resolved(Value):
    """Everything that `infra/` needs to make the cluster; no question is left.

    `interfaces` is one node's launch layout, primary first. `user_data` and `bastion_user_data`
    are cloud-init documents in clear text without secrets. `public_key` is the OpenSSH public key
    of the cluster's client key. `ssh_from` is a CIDR. `tags` are the user's and gpuctl's:
    `gpuctl:cluster` = name is on everything.
    """

    cluster: Cluster
    account: str
    region: str
    zone: str
    instance_type: InstanceType
    interfaces: tuple[Interface, ...]
    image: Image
    bastion_type: str
    bastion_image: Image
    bastion_price_usd_h: float | None
    nat_price_usd_h: float
    ssh_from: str
    public_key: str
    user_data: str
    bastion_user_data: str
    tags: dict[str, str]

    @property
    def node_names(self) -> tuple[str, ...]:
        """`node0` … in rank order."""
        return tuple(f"node{i}" for i in range(self.cluster.nodes))
