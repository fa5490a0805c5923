"""The instance types that gpuctl knows by name, to check names and to estimate prices."""

import difflib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

PRICES_DATE = "2026-07-28"
"""Date of AWS's price list in instance_types.yaml; us-east-1, on-demand, Linux."""

BASTION_TYPE = "t3.small"
BASTION_PRICE_USD_H = 0.0208
"""On-demand Linux in us-east-1: https://aws.amazon.com/ec2/pricing/on-demand (from memory)."""

NAT_PRICE_USD_H = 0.045
"""Dollars for an hour of a NAT gateway in us-east-1.

Without its traffic ($0.045 per GB) and its public address: https://aws.amazon.com/vpc/pricing, as
quoted in https://cloudburn.io/blog/aws-nat-gateway-pricing (2026-02-24), read 2026-11-20.
"""

PUBLIC_IPV4_PRICE_USD_H = 0.005
"""Dollars for an hour of a public IPv4 address in use, in every region.

The NAT gateway and the bastion have one each (https://aws.amazon.com/vpc/pricing, in force since
2024-02-01; from memory).
"""

GP3_PRICE_USD_GB_MONTH = 0.08
"""Dollars for a month of a GiB of a gp3 volume in us-east-1: https://aws.amazon.com/ebs/pricing
(from memory)."""

EFS_PRICE_USD_GB_MONTH = 0.30
"""Dollars for a month of a GB in EFS Standard in us-east-1: https://aws.amazon.com/efs/pricing
(2026-11-23)."""

LUSTRE_PRICES_USD_GB_MONTH: Mapping[int | None, float] = MappingProxyType(
    {None: 0.14, 125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.6}
)
"""Dollars for a month of a GB of FSx for Lustre on SSD in us-east-1, by the throughput in MB/s per
TiB; None is scratch. Source: https://aws.amazon.com/fsx/lustre/pricing, scratch and 125 as quoted
in learning-aws.readthedocs.io and c3x.dev (2026-11-23), the others from memory."""

HOURS_A_MONTH = 730
"""The hours of a twelfth of a year."""

COMPUTE_CAPABILITY: Mapping[str, str] = {
    "T4": "75",
    "A100": "80",
    "A10G": "86",
    "L4": "89",
    "L40S": "89",
    "H100": "90",
    "H200": "90",
    "B200": "100",
    "GB200": "100",
    "B300": "103",
    "RTX PRO 4500": "120",
    "RTX PRO Server 6000": "120",
}
"""NVIDIA's architecture per GPU, as nvcc numbers it: https://developer.nvidia.com/cuda-gpus and
ADAI's nccl-tests.Dockerfile (2026-11-20; the last two from memory)."""

BEFORE_TURING: Mapping[str, str] = {
    "g3": "M60", "g3s": "M60", "p2": "K80", "p3": "V100", "p3dn": "V100",
}  # fmt: skip
"""Families with a GPU that NVIDIA's open driver does not support
("Kernel Modules", https://docs.nvidia.com/datacenter/tesla/driver-installation-guide, 2026-11-26).

AWS publishes no image with another driver for them: its Deep Learning AMIs with the proprietary
driver for Amazon Linux 2 listed P3dn until version 71.6 (2026-01-02) and not in 73.1 (2026-06-05),
by the DLAMI release notes. R580 is NVIDIA's last branch for Volta
(https://wiki.nixos.org/wiki/NVIDIA, legacy_580; 2026-11-26)."""

_FILE = Path(__file__).parent / "instance_types.yaml"


class Fact(BaseModel):
    """A part of the catalogue; None means that the value is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(Fact):
    """The accelerators of one instance; Trainium has `count` 0 and the model `neuron`."""

    count: int
    model: str
    mem_mib: int | None


class CardFacts(Fact):
    """Network cards and EFA of one instance; `gbps` is the sum over all cards."""

    cards: int
    max_efa: int
    gbps: int


class Rdma(Fact):
    """The features of EFA on this type."""

    read: bool
    write: bool
    gpudirect: str


class QuotaCodes(Fact):
    """Codes of the quotas in Service Quotas, counted in vCPUs."""

    on_demand: str
    spot: str | None


class CatalogueEntry(Fact):
    """The facts about an instance type that gpuctl knows without asking AWS."""

    gpu: Gpu
    vcpus: int
    memory_mib: int
    arch: Literal["x86_64", "arm64"]
    local_nvme_gb: int
    network: CardFacts
    rdma: Rdma
    fabricmanager: bool
    usage_classes: tuple[Literal["on-demand", "spot", "capacity-block"], ...]
    quota: QuotaCodes
    price_usd_h: float | None


INSTANCE_TYPE = (
    r"^[a-z][a-z0-9]*(-[a-z0-9]+)*"
    r"\.(nano|micro|small|medium|large|[0-9]{0,3}xlarge|metal(-[0-9]{1,3}xl)?)$"
)
"""The form of an instance type's name. Only EC2 knows whether the type exists, and where."""

_ACCELERATED = r"(p|g|gr|trn)[0-9]"
"""The beginnings of the names of families with GPUs or Trainium."""

_NOT_KEPT = (*BEFORE_TURING, "g4ad", "g5g", "g6f", "gr6f", "trn2u")
"""Families of EC2 with accelerators that are not in the file: without EFA, or not for sale to all
(https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html; from memory)."""


def is_instance_type(name: str) -> bool:
    """Return whether the name has the form of an EC2 instance type."""
    return re.fullmatch(INSTANCE_TYPE, name) is not None


def may_be_misspelled(name: str) -> bool:
    """Return whether the name is of an accelerated type that the catalogue does not have.

    The type may be newer than the catalogue, or the name a typing mistake.
    """
    if name in catalogue() or not re.match(_ACCELERATED, name):
        return False
    return name.partition(".")[0] not in _NOT_KEPT


def families() -> tuple[str, ...]:
    """Return the families of the catalogue, in its order."""
    return tuple(dict.fromkeys(known.partition(".")[0] for known in catalogue()))


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Return every known type by name, in the order of the file: P, G, Trn."""
    # libyaml's loader takes 4 ms, Python's takes 60; not every PyYAML includes libyaml.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load(_FILE.read_text(), Loader=loader)  # noqa: S506  (both are safe)
    entries = document["instance_types"].items()
    return MappingProxyType({name: CatalogueEntry.model_validate(facts) for name, facts in entries})


def nearest(name: str) -> tuple[str, ...]:
    """Return up to three known names that look like `name`, the most alike first."""
    return tuple(difflib.get_close_matches(name.lower(), catalogue(), n=3, cutoff=0.6))


def price_usd_h(name: str) -> float | None:
    """Return on-demand dollars per hour in us-east-1 on `PRICES_DATE`; None if not known."""
    if name == BASTION_TYPE:
        return BASTION_PRICE_USD_H
    entry = catalogue().get(name)
    return entry.price_usd_h if entry else None
