"""The cluster file: the cluster that a person asks for. Every field has an effect."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.duration import Duration
from config.identifiers import CLUSTER_NAME, ClusterName
from config.mistakes import Mistake, refusal
from config.models import Model

REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"
RESERVATION = r"^cr-[0-9a-f]{8,17}$"
VPC = r"^vpc-[0-9a-f]{8,17}$"
SUBNET = r"^subnet-[0-9a-f]{8,17}$"
FILES = r"^fs-[0-9a-f]{8,40}$"
BUCKET = r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"
ZONE = r"^[a-z]{2}(-[a-z]+)+-[0-9]+(-[a-z]+-[0-9]+)?[a-z]$"
IMAGE = (
    r"^(dlami-ubuntu-24\.04|dlami-ubuntu-22\.04|dlami-al2023|stock-ubuntu-24\.04|stock-debian-12"
    r"|ami-[0-9a-f]{8,17})$"
)
DEFAULT_IMAGE = "dlami-ubuntu-24.04"
PACKAGE = r"^[a-z0-9][a-z0-9+.:~=-]*$"
BRANCH = r"^[0-9]{3}$"
VERSION = r"^[0-9]+\.[0-9]+\.[0-9]+$"
RELEASE = r"^[0-9]+\.[0-9]+\.[0-9]+-[0-9]+(@[0-9a-f]{40})?$"
TESTS_RELEASE = r"^[0-9]+\.[0-9]+\.[0-9]+(@[0-9a-f]{40})?$"
PROFILE = r"^[A-Za-z0-9_+=,.@-]{1,128}$"
NO_NUL = r"^[^\x00]*$"
FOLDER = r"^/[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$"

FORMS = {
    CLUSTER_NAME: "lower-case letters, digits and hyphens, at most 30, with a letter first",
    REGION: "an AWS region such as us-east-1",
    ZONE: "an availability zone such as us-east-1a",
    RESERVATION: "the id of a capacity reservation (cr-0123456789abcdef0)",
    VPC: "the id of a VPC (vpc-0123456789abcdef0)",
    SUBNET: "the id of a subnet (subnet-0123456789abcdef0)",
    FILES: "the id of an EFS or an FSx for Lustre (fs-0123456789abcdef0)",
    BUCKET: "the name of an S3 bucket, without s3:// and without a folder (my-data)",
    IMAGE: "dlami-ubuntu-24.04, dlami-ubuntu-22.04, dlami-al2023, stock-ubuntu-24.04,"
    " stock-debian-12 or an AMI id (ami-0123456789abcdef0)",
    PACKAGE: "the name of one package of the distribution (htop)",
    BRANCH: "a branch of NVIDIA's driver, quoted: '580'",
    VERSION: "a version of three numbers such as 1.51.0",
    RELEASE: "a release of NCCL such as 2.30.4-1, or one with its commit: 2.30.4-1@<40 hex digits>",
    TESTS_RELEASE: "a release of nccl-tests such as 2.18.3, or one with its commit:"
    " 2.18.3@<40 hex digits>",
    PROFILE: "the name of an instance profile: at most 128 letters, digits and _+=,.@-",
    NO_NUL: "text without NUL characters: no program can be given them",
    FOLDER: "a folder's whole path of letters, digits, '.', '_' and '-', such as /shared",
}
"""Every pattern of a cluster file in words, for diagnostics and for the reference."""


def _ipv4_range(value: str) -> str:
    try:
        ipaddress.IPv4Network(value)
    except ValueError as error:
        reason = str(error).removeprefix(f"{value!r} ").removeprefix(f"{value} ")
        raise refusal(
            Mistake("E205", f"which is no IPv4 range ({reason})", "write one such as 10.213.0.0/16")
        ) from None
    return value


def _vpc_range(value: str) -> str:
    """Return a range from /16 to /24. A VPC may have /28, in which two subnets are too small.

    https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html, 2026-11-20.
    """
    length = ipaddress.IPv4Network(_ipv4_range(value)).prefixlen
    if not 16 <= length <= 24:
        raise refusal(Mistake("E205", f"which is a /{length}", "use a range from /16 to /24"))
    return value


def _tag_key(value: str) -> str:
    """Return the key if AWS allows it.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html, 2026-11-20.
    """
    for prefix in ("aws:", "gpuctl:"):
        if value.lower().startswith(prefix):
            raise refusal(Mistake("E206", f"begins with {prefix}", "choose another key"))
    if value == "Name":
        raise refusal(Mistake("E206", "is set by gpuctl on everything", "choose another key"))
    return value


def _file_path(value: str) -> str:
    if not value.startswith("/") or value.endswith("/") or "\x00" in value:
        raise refusal(Mistake("E203", "is no file", "write its whole path: /etc/motd"))
    return value


Ipv4Range = Annotated[str, AfterValidator(_ipv4_range)]
VpcRange = Annotated[str, AfterValidator(_vpc_range)]
TagKey = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_tag_key)]
TagValue = Annotated[str, Field(max_length=256)]
FilePath = Annotated[str, AfterValidator(_file_path)]
Dollars = Annotated[float, Field(ge=0.01, le=1_000_000)]
Command = Annotated[str, Field(min_length=1, pattern=NO_NUL)]
Folder = Annotated[str, Field(pattern=FOLDER, max_length=200)]


class Placement(Model):
    """The distance between the nodes."""

    strategy: Literal["cluster", "none"] = Field(
        default="cluster",
        description="`cluster`: one cluster placement group, nodes close together; `none`: wherever"
        " there is room in the zone.",
    )


class Capacity(Model):
    """The source of the instances."""

    type: Literal["on-demand", "spot", "reservation", "capacity-block"] = Field(
        default="on-demand",
        description="`on-demand`: claimed whole before any node is launched; `spot`: may be taken"
        " back; `reservation`, `capacity-block`: into what you have reserved.",
    )
    id: Annotated[str, Field(pattern=RESERVATION)] | None = Field(
        default=None, description="The capacity reservation or block to launch into (`cr-…`)."
    )
    zones: tuple[Annotated[str, Field(pattern=ZONE)], ...] = Field(
        default=(),
        description="Zones to choose from, best first; empty: all availability zones that offer it."
        " A Local Zone is used only if it is named.",
    )
    wait: Duration | None = Field(
        default=None,
        description="How long to wait for capacity, or for a block's start (`30m`); by default the"
        " first refusal of the last zone ends `up`.",
    )
    spare_attempts: int = Field(
        default=0,
        ge=0,
        le=100,
        description="How many machines `up` replaces at most that do not boot, fail their set-up or"
        " are not fit for jobs. With 1 or more a new cluster becomes ready or is removed; with 0"
        " it is kept for inspection.",
    )


class Network(Model):
    """The cluster's VPC, which gpuctl makes, or an existing one."""

    cidr: VpcRange = Field(
        default="10.213.0.0/16", description="IPv4 range of the cluster's own VPC, /16 to /24."
    )
    vpc: Annotated[str, Field(pattern=VPC)] | None = Field(
        default=None,
        description="A VPC that exists (`vpc-…`), instead of one of the cluster's own.",
    )
    subnet: Annotated[str, Field(pattern=SUBNET)] | None = Field(
        default=None,
        description="The subnet that takes the nodes (`subnet-…`), and with it its VPC; by default"
        " the one of `vpc` that fits and has the most free addresses.",
    )
    ssh_from: Ipv4Range | None = Field(
        default=None,
        description="IPv4 range that may ssh in; by default the caller's address.",
    )
    access: Literal["bastion", "elastic-ip", "private", "ssm"] = Field(
        default="bastion",
        description="How people get in. `bastion`: through a small machine with a public address;"
        " `elastic-ip`: straight to the nodes, each with a public address; `private`: to the"
        " nodes' private addresses, by your VPN or peering; `ssm`: through AWS's Session"
        " Manager, without any open port.",
    )
    interfaces: Literal["save-addresses", "max-bandwidth"] = Field(
        default="save-addresses",
        description="`save-addresses`: one address per node; `max-bandwidth`: more ordinary"
        " interfaces, for types with several network cards.",
    )
    efa: Literal["auto", "required", "off"] = Field(
        default="auto",
        description="EFA on every card that has it; `required` refuses types without.",
    )

    @property
    def exists(self) -> bool:
        """Return whether the nodes use an existing network instead of one made for the cluster."""
        return self.vpc is not None or self.subnet is not None

    @property
    def has_bastion(self) -> bool:
        """Return whether people connect through a machine with a public address."""
        return self.access == "bastion"

    @property
    def nodes_are_public(self) -> bool:
        """Return whether each node has a public address, and so needs no NAT gateway."""
        return self.access == "elastic-ip"

    @property
    def uses_session_manager(self) -> bool:
        """Return whether people connect through AWS's Session Manager, without any open port."""
        return self.access == "ssm"


class Root(Model):
    """A node's root volume, an encrypted gp3.

    Bounds: EC2 API Reference, EbsBlockDevice (botocore's model, 2026-11-20).
    """

    gib: int = Field(default=200, ge=30, le=65536, description="Size, GiB.")
    iops: Annotated[int, Field(ge=3000, le=80000)] | None = Field(
        default=None, description="Operations per second, at most 500 per GiB; by default 3000."
    )
    throughput: Annotated[int, Field(ge=125, le=2000)] | None = Field(
        default=None,
        description="MiB per second, at most a quarter of the operations; by default 125.",
    )


class Shared(Model):
    """A file system that all nodes mount: made and removed with the cluster, or one that exists."""

    type: Literal["efs", "fsx-lustre"] = Field(
        description="`efs`: NFS that grows by itself; `fsx-lustre`: a parallel file system of"
        " fixed size."
    )
    id: Annotated[str, Field(pattern=FILES)] | None = Field(
        default=None,
        description="The id of a file system that exists (`fs-…`): gpuctl mounts it, and never"
        " changes or removes it. By default it makes one.",
    )
    path: Folder = Field(default="/shared", description="Where every node has it.")
    deployment: Literal["scratch", "persistent"] | None = Field(
        default=None,
        description="Of `fsx-lustre`: `scratch` (SCRATCH_2, not replicated) or `persistent`"
        " (PERSISTENT_2); by default `scratch`.",
    )
    capacity_gib: Annotated[int, Field(ge=1200, le=1_000_800)] | None = Field(
        default=None,
        description="Of `fsx-lustre`: 1200 or a multiple of 2400 GiB; by default 1200.",
    )
    throughput: Literal[125, 250, 500, 1000] | None = Field(
        default=None,
        description="Of a `persistent` one: MB/s per TiB; by default 125.",
    )

    @property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """Return the first and last TCP port of each range that its servers use.

        EFS User Guide, "Using VPC security groups"; FSx for Lustre User Guide, "File system access
        control with Amazon VPC" (2026-11-20).
        """
        return ((2049, 2049),) if self.type == "efs" else ((988, 988), (1018, 1023))


class Storage(Model):
    """The nodes' disks and their shared file system."""

    root: Root = Field(default=Root(), description="The root volume of each node.")
    shared: Shared | None = Field(
        default=None,
        description="A file system that all nodes see; **removed with the cluster, data and all**,"
        " unless `id` names one that exists.",
    )
    buckets: tuple[Annotated[str, Field(pattern=BUCKET)], ...] = Field(
        default=(),
        description="Names of S3 buckets that exist and that the nodes read with the role of"
        " `instance_profile`. gpuctl checks before it creates anything that they can. It mounts,"
        " changes and removes none.",
    )
    scratch: Folder = Field(
        default="/scratch",
        description="Where the instance's own NVMe disks are mounted as one, if it has any; the"
        " data is lost with the instance.",
    )


class Software(Model):
    """Software that cloud-init adds to the image."""

    packages: tuple[Annotated[str, Field(pattern=PACKAGE)], ...] = Field(
        default=(), description="Packages of the distribution to install."
    )
    driver: Annotated[str, Field(pattern=BRANCH)] | None = Field(
        default=None,
        description="Branch of NVIDIA's driver (`'580'`): a stock image gets it, any other must"
        " have it.",
    )
    efa: Annotated[str, Field(pattern=VERSION)] | None = Field(
        default=None,
        description="Version of AWS's EFA installer (`1.51.0`): a stock image gets it, any other"
        " must have it.",
    )
    nccl: Annotated[str, Field(pattern=RELEASE)] | None = Field(
        default=None,
        description="Release of NCCL (`2.30.4-1`): a stock image gets it, any other must have it."
        " One that gpuctl does not know yet is named with its commit (`2.31.1-1@…`).",
    )
    openmpi: Literal[4, 5] | None = Field(
        default=None, description="Open MPI that `mpirun` is; by default 4 where there is a choice."
    )
    nccl_tests: Annotated[str, Field(pattern=TESTS_RELEASE)] | None = Field(
        default=None,
        description="Version of nccl-tests (`2.18.3`, or `2.20.1@…` with its commit), built on the"
        " nodes; by default the image's own where it has some.",
    )


class Setup(Model):
    """The user's files and commands on the nodes."""

    files: dict[FilePath, str] = Field(
        default={}, description="Files by their path, written at the first boot; owned by root."
    )
    commands: tuple[Command, ...] = Field(
        default=(),
        description="Shell commands run as root, in order, after everything else is there.",
    )


class Lifetime(Model):
    """The time after which the cluster ends by itself."""

    max: Duration = Field(
        description="All machines power off, and so are terminated, this long after boot: `8h`."
    )
    idle: Duration | None = Field(
        default=None,
        description="They also do after this long without a run, a login or a GPU at work: `30m`.",
    )


class Budget(Model):
    """The maximum cost of the cluster; `plan` and `up` refuse a higher one."""

    max_hourly: Dollars | None = Field(
        default=None, description="US dollars per hour, for the whole cluster."
    )
    max_total: Dollars | None = Field(
        default=None,
        description="US dollars for all of `lifetime.max`, which must be set.",
    )


class Cluster(Model):
    """A cluster file."""

    name: ClusterName = Field(description="The cluster's name, unique per region and account.")
    nodes: int = Field(ge=1, le=512, description="How many GPU nodes.")
    instance_type: str = Field(
        description="EC2 instance type of the nodes (`p5.48xlarge`), with GPUs or without."
    )
    region: Annotated[str, Field(pattern=REGION)] | None = Field(
        default=None, description="AWS region; by default `--region`, AWS_REGION or the profile's."
    )
    image: str = Field(default=DEFAULT_IMAGE, description="What the nodes boot.", pattern=IMAGE)
    placement: Placement = Field(
        default=Placement(), description="How the nodes lie to each other."
    )
    capacity: Capacity = Field(default=Capacity(), description="Where the instances come from.")
    network: Network = Field(
        default=Network(), description="The cluster's own VPC, or one that exists."
    )
    instance_profile: Annotated[str, Field(pattern=PROFILE)] | None = Field(
        default=None,
        description="The name of an IAM instance profile that exists: the nodes get its role's"
        " permissions, and gpuctl creates no role. By default the nodes have no permissions, or,"
        " with `network.access: ssm`, those of Session Manager.",
    )
    storage: Storage = Field(
        default=Storage(), description="The nodes' disks, and what they share."
    )
    software: Software = Field(default=Software(), description="What cloud-init adds to the image.")
    setup: Setup = Field(default=Setup(), description="What is yours on the nodes.")
    lifetime: Lifetime | None = Field(
        default=None, description="When the cluster ends by itself; by default it does not."
    )
    budget: Budget | None = Field(
        default=None, description="What the cluster may cost; by default there is no limit."
    )
    tags: dict[TagKey, TagValue] = Field(
        default={},
        max_length=40,
        description="Tags on everything, in addition to gpuctl's; at most 40.",
    )

    @property
    def needs_role(self) -> bool:
        """Return whether gpuctl creates an IAM role for the nodes."""
        return self.network.uses_session_manager and self.instance_profile is None
