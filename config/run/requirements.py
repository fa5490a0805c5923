"""`requires` of a run file: what the nodes must be. `run` compares it with the cluster.

A range is written as `8`, `2..8`, `2..` or `..8`. A size has a unit: `80GB`, `512GB..`.
"""

import math
import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from config.cluster.cluster_file import REGION, ZONE, Dollars
from config.models import Model, number_text

_NUMBER = r"[0-9]{1,7}"
_SIZE = r"[0-9]{1,7}(\.[0-9]{1,6})?(MB|GB|TB)"
COUNTS = rf"^({_NUMBER}|{_NUMBER}\.\.|\.\.{_NUMBER}|{_NUMBER}\.\.{_NUMBER})$"
SIZES = rf"^({_SIZE}|{_SIZE}\.\.|\.\.{_SIZE}|{_SIZE}\.\.{_SIZE})$"
ONE_SIZE = rf"^{_SIZE}$"
CAPABILITY = r"^[0-9]{1,2}\.[0-9]$"

REQUIREMENT_FORMS = {
    COUNTS: "a number or a range: 8, 2..8, 2.. or ..8",
    SIZES: "a size or a range of sizes: 80GB, 40GB..80GB, 40GB.. or ..80GB",
    ONE_SIZE: "a size with MB, GB or TB: 64GB",
    CAPABILITY: "a compute capability, quoted: '9.0'",
}
"""The patterns of this module in words."""

_UNITS = {"MB": 1 / 1024, "GB": 1.0, "TB": 1024.0}


def parse_range(text: str) -> tuple[float, float]:
    """Return the least and the largest value of a range; sizes in GB. An open end is infinite."""
    first, dots, last = text.partition("..")
    least = _parse(first) if first else 0.0
    if not dots:
        return least, least
    return least, _parse(last) if last else math.inf


def plain_gpu(name: str) -> str:
    """Return the name of a GPU without what dstack and EC2 write differently."""
    return re.sub(r"SERVER|[^A-Z0-9]", "", name.upper())


def _parse(text: str) -> float:
    number = text.rstrip("BGMT")
    return float(number) * _UNITS.get(text[len(number) :], 1.0)


Counts = Annotated[
    str,
    Field(pattern=COUNTS),
    BeforeValidator(number_text),
    WithJsonSchema({"type": ["string", "integer"], "minimum": 0, "pattern": COUNTS}),
]
Sizes = Annotated[str, Field(pattern=SIZES)]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class Requires(Model):
    """The conditions on the nodes of a run; another cluster is refused before anything runs."""

    gpu: Names = Field(default=(), description="Models of GPU, one of which each node must have.")
    gpus: Counts | None = Field(default=None, description="GPUs of a node: `8`, `1..`.")
    gpu_memory: Sizes | None = Field(default=None, description="Memory of each GPU: `80GB..`.")
    gpu_memory_total: Sizes | None = Field(
        default=None, description="Memory of all GPUs of a node together."
    )
    compute_capability: Annotated[str, Field(pattern=CAPABILITY)] | None = Field(
        default=None, description="The least compute capability of the GPUs: `'9.0'`."
    )
    efa: Counts | None = Field(default=None, description="EFA interfaces of a node: `32..`.")
    cpus: Counts | None = Field(default=None, description="vCPUs of a node.")
    arch: Literal["x86_64", "arm64"] | None = Field(
        default=None, description="The processor's architecture."
    )
    memory: Sizes | None = Field(default=None, description="Memory of a node: `512GB..`.")
    shm_size: Annotated[str, Field(pattern=ONE_SIZE)] | None = Field(
        default=None, description="Shared memory; a node has half of its memory as `/dev/shm`."
    )
    disk: Sizes | None = Field(
        default=None, description="Root volume of a node, or its NVMe disks, with a warning."
    )
    instance_types: Names = Field(default=(), description="Instance types, one of them.")
    regions: tuple[Annotated[str, Field(pattern=REGION)], ...] = Field(
        default=(), description="Regions, one of them."
    )
    zones: tuple[Annotated[str, Field(pattern=ZONE)], ...] = Field(
        default=(), description="Availability zones, one of them."
    )
    spot: bool | None = Field(
        default=None, description="`true`: spot instances; `false`: none of them."
    )
    max_price: Dollars | None = Field(
        default=None, description="The largest on-demand price of a node, in dollars per hour."
    )
    clusters: Names = Field(
        default=(), description="Names of clusters; `run` warns if it goes to another."
    )

    @property
    def name_a_type(self) -> bool:
        """Return whether an instance type can be chosen by them: they name types or GPUs."""
        has_gpus = self.gpus is None or parse_range(self.gpus)[1] > 0
        about_gpus = (self.gpu, self.gpus, self.gpu_memory, self.gpu_memory_total)
        return bool(self.instance_types) or (
            has_gpus and any((*about_gpus, self.compute_capability, self.efa))
        )
