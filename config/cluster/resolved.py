"""A cluster with every open choice decided; the Pulumi program and the plan are made from it."""

from datetime import datetime, timedelta
from typing import Literal

from pydantic import AwareDatetime, Field

from config.cluster.cluster_file import Cluster
from config.models import Value

CLUSTER_TAG = "gpuctl:cluster"
"""The tag with the cluster's name, on everything."""
ID_TAG = "gpuctl:id"
"""The tag with the cluster's unique id: two people may choose one name in an account."""
OWNER_TAG = "gpuctl:owner"
"""The tag with the ARN of the user who made the cluster."""
ENDS_TAG = "gpuctl:ends"
"""The tag with the time at which a machine powers off (ISO 8601), on machines with a lease.
It moves with `gpuctl extend`, so Pulumi ignores it."""

WIND_DOWN = timedelta(minutes=30)
"""AWS ends a block's instances this long before the block's end: "How Capacity Blocks work",
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-how.html (2026-11-20)."""


class NetworkCard(Value):
    """A network card of an instance type, from DescribeInstanceTypes' NetworkInfo.NetworkCards.

    `interface_types` is EC2's InterfaceTypes of the card (`interface`, `efa`, `efa-only`); empty if
    the API gives none.
    """

    index: int
    max_interfaces: int
    interface_types: tuple[str, ...] = ()


class InstanceType(Value):
    """EC2's description of an instance type. `price_usd_h` is on-demand, None if unknown.

    `boot_modes` are EC2's SupportedBootModes (`legacy-bios`, `uefi`), `placement_strategies` are
    those of placement groups (`cluster`); both are empty if EC2 gives none. `local_disks` are the
    instance's NVMe disks.
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
    """An AMI, as pinned in the plan. `boot_mode` is EC2's, empty if EC2 gives none."""

    id: str
    name: str
    root_device: str
    architecture: str
    boot_mode: str = ""


class Reservation(Value):
    """The user's capacity reservation or block into which the nodes are launched.

    `group` is the placement group that it is in, empty for none. `ends` is None for one without an
    end.
    """

    id: str
    is_block: bool
    group: str = ""
    starts: AwareDatetime
    ends: AwareDatetime | None = None

    @property
    def instances_end(self) -> datetime | None:
        """Return when AWS begins to end the instances of a block; None for another reservation."""
        return self.ends - WIND_DOWN if self.is_block and self.ends else None


class ExistingNetwork(Value):
    """A VPC that gpuctl did not make: the subnet for nodes by zone; all values are ids.

    `bastion_subnet` is a public subnet in any zone, empty if there is no bastion.
    """

    vpc: str
    subnets: dict[str, str]
    bastion_subnet: str = ""


class ExistingStorage(Value):
    """A shared file system that gpuctl did not make. `source` is what nodes mount.

    `groups` are by zone the existing security groups that nodes join to reach it.
    """

    id: str
    source: str
    groups: dict[str, tuple[str, ...]]


class Resolved(Value):
    """All that `infra/` needs to make the cluster, with no choice left open.

    `interfaces` is one node's launch layout, primary first. `user_data` and `bastion_user_data` are
    cloud-init documents in clear text without secrets. `public_key` is the OpenSSH public key of
    the cluster's client key, `nodes_public_key` that of its nodes. `ssh_from` is a CIDR. `tags` are
    the user's and gpuctl's: `gpuctl:cluster` = name, `gpuctl:id` and `gpuctl:owner` are on
    everything. `zones` are the zones that may take the cluster, `zone` first; an existing cluster
    has one. `reservation` is the capacity into which the nodes are launched. `existing_network` has
    a subnet in each of `zones`; it is None for a network made for the cluster. `existing_storage`
    is None unless the file names a file system that exists. `boundary` is the
    ARN of the permissions boundary of the nodes' role, empty for none. `sent` is the nodes' user
    data as EC2 has it, in base64; empty if nobody has asked yet. `price_source` is the source of
    the nodes' price, `warnings` are the questions that AWS did not answer. `foreign_tags` are the
    tags that others added to resources, by the resource and its property: `aws:ec2/vpc:Vpc demo
    tags`. `former_tags` are keys of an earlier file that resources may still have.
    """

    cluster: Cluster
    account: str
    region: str
    zone: str
    zones: tuple[str, ...] = ()
    reservation: Reservation | None = None
    existing_network: ExistingNetwork | None = None
    existing_storage: ExistingStorage | None = None
    instance_type: InstanceType
    interfaces: tuple[Interface, ...]
    image: Image
    bastion_type: str
    bastion_image: Image
    bastion_price_usd_h: float | None
    nat_price_usd_h: float
    ssh_from: str
    public_key: str
    nodes_public_key: str
    user_data: str
    bastion_user_data: str
    boundary: str = ""
    sent: str = ""
    tags: dict[str, str]
    foreign_tags: dict[str, dict[str, str]] = Field(default={})
    former_tags: tuple[str, ...] = ()
    price_source: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The cluster's id; empty if its tags have none."""
        return self.tags.get(ID_TAG, "")

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names `node0` … in rank order."""
        return tuple(f"node{i}" for i in range(self.cluster.nodes))
