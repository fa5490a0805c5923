"""A cluster in which nothing is left open: what the program and the plan are made of."""

from typing import Literal

from pydantic import AwareDatetime

from config.cluster.cluster_file import Cluster
from config.models import Value

CLUSTER_TAG = "gpuctl:cluster"
"""The tag with the cluster's name, on everything."""
ID_TAG = "gpuctl:id"
"""The tag with the cluster's own id: two people may choose one name in an account."""
OWNER_TAG = "gpuctl:owner"
"""The tag with the ARN of whoever brought the cluster up."""


class NetworkCard(Value):
    """A network card of an instance type, from DescribeInstanceTypes' NetworkInfo.NetworkCards.

    `interface_types` is EC2's InterfaceTypes of the card (`interface`, `efa`, `efa-only`); empty
    where the API gives none.
    """

    index: int
    max_interfaces: int
    interface_types: tuple[str, ...] = ()


class InstanceType(Value):
    """What EC2 says of an instance type. `price_usd_h` is on-demand, None where unknown.

    `boot_modes` are EC2's SupportedBootModes (`legacy-bios`, `uefi`), `placement_strategies` those
    of placement groups (`cluster`), both empty where it gives none.
    `local_disks` are the instance's own that are reached as NVMe devices.
    """

    name: str
    vcpus: int
    memory_mib: int
    gpus: int
    gpu_model: str
    architecture: str
    max_efa: int
    cards: tuple[NetworkCard, ...]
    boot_modes: tuple[str, ...] = ()
    placement_strategies: tuple[str, ...] = ()
    local_disks: int = 0
    price_usd_h: float | None = None


class Interface(Value):
    """One network interface of a node, at launch; the first is card 0, device 0, `interface`."""

    card: int
    device: int
    type: Literal["interface", "efa-only"]


class Image(Value):
    """An AMI, resolved: pinned in the plan. `boot_mode` is EC2's, empty where it gives none."""

    id: str
    name: str
    root_device: str
    architecture: str
    boot_mode: str = ""


class Reservation(Value):
    """A capacity reservation or block of the user's own, that the nodes are launched into.

    `group` is the placement group that it lies in, empty for none. `ends` is None for one without
    an end.
    """

    id: str
    is_block: bool
    group: str = ""
    starts: AwareDatetime
    ends: AwareDatetime | None = None


class ExistingNetwork(Value):
    """A VPC that is not gpuctl's: by zone the subnet that takes the nodes there, all by their ids.

    `bastion_subnet` is a public one of whatever zone, empty where there is no bastion.
    """

    vpc: str
    subnets: dict[str, str]
    bastion_subnet: str = ""


class Resolved(Value):
    """Everything that `infra/` needs to make the cluster; no question is left.

    `interfaces` is one node's launch layout, primary first. `user_data` and `bastion_user_data`
    are cloud-init documents in clear text without secrets. `public_key` is the OpenSSH public key
    of the cluster's client key. `ssh_from` is a CIDR. `tags` are the user's and gpuctl's:
    `gpuctl:cluster` = name, `gpuctl:id` and `gpuctl:owner` are on everything. `zones` are those
    that may take the cluster, `zone` first: one for a cluster that exists. `reservation` is what
    the nodes are launched into.
    `existing_network` has a subnet in each of `zones`; None for a network of the cluster's own.
    `hop_limit` is how many hops away the machines' metadata service answers. `sent` is the nodes'
    user data as EC2 has it, in base64; empty where nobody has asked yet.
    `price_source` says where the nodes' price is from, `warnings` what could not be asked.
    """

    cluster: Cluster
    account: str
    region: str
    zone: str
    zones: tuple[str, ...] = ()
    reservation: Reservation | None = None
    existing_network: ExistingNetwork | None = None
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
    hop_limit: int = 1
    sent: str = ""
    tags: dict[str, str]
    price_source: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The cluster's id; empty for one that an early gpuctl made."""
        return self.tags.get(ID_TAG, "")

    @property
    def node_names(self) -> tuple[str, ...]:
        """`node0` … in rank order."""
        return tuple(f"node{i}" for i in range(self.cluster.nodes))
