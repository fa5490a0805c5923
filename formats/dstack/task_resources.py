"""`resources` and the other requirements of dstack's task, as `requires` of a run file.

dstack takes `cpu: 8` and `memory: 64GB` for exactly that; the nodes of a cluster may have more, so
here they are the least. GPUs are compared exactly: their number and memory change the job.
"""

import re
from typing import Any

from config.catalogue.instance_types import catalogue
from config.cluster.cluster_file import REGION, ZONE
from config.mistakes import Path
from config.run.requirements import parse_range, plain_gpu
from formats.converted import Placed
from formats.dstack.dstack_file import DstackFile

RESOURCES = ("cpu", "memory", "shm_size", "gpu", "disk")
_GPU = ("vendor", "name", "count", "memory", "total_memory", "compute_capability")
_VENDORS = {"nvidia": "nvidia", "amd": "amd", "google": "google", "tpu": "google"}
_VENDORS |= {"intel": "intel", "tenstorrent": "tenstorrent", "tt": "tenstorrent"}
_ARCHITECTURES = {"x86": "x86_64", "x86_64": "x86_64", "amd64": "x86_64"}
_ARCHITECTURES |= {"arm": "arm64", "arm64": "arm64", "aarch64": "arm64"}
_NOT_KEPT = ("K80", "M60", "T4G", "GB200", "GB300")
"""GPUs of AWS's types that are not in the catalogue
(https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html; from memory)."""


def requires(reading: DstackFile, resources: tuple[Path, ...]) -> dict[str, Any]:
    """Return `requires` for the file; `resources` are the paths of the task's or its groups'."""
    needs: dict[str, Any] = {}
    for at in resources:
        needs = _merged(reading, needs, _resources(reading, at))
    needs |= _names(reading, "instance_types", "instance_types", r"[a-z0-9-]+\.[a-z0-9-]+")
    needs |= _names(reading, "regions", "regions", REGION)
    needs |= _names(reading, "availability_zones", "zones", ZONE)
    policy = reading.one_of(("spot_policy",), ("spot", "on-demand", "auto"))
    if policy in ("spot", "on-demand"):
        needs["spot"] = Placed(policy == "spot", ("spot_policy",))
    price = reading.number(("max_price",))
    if price is not None:
        needs["max_price"] = Placed(price, ("max_price",))
    _backends(reading)
    fleets = [_fleet(reading, at) for at in _entries(reading, "fleets")]
    if fleets:
        needs["clusters"] = Placed([name.rpartition("/")[2] for name in fleets], ("fleets",))
    return needs


def _merged(reading: DstackFile, first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what both ask for: every node of a cluster is of one type."""
    merged = {**first, **other}
    for key in first.keys() & other.keys():
        before, value = first[key].value, other[key].value
        if key in ("cpus", "memory", "shm_size", "disk"):
            merged[key] = max(first[key], other[key], key=lambda need: parse_range(need.value))
        elif before != value:
            why = f"asks for {_words(value)}, another group for {_words(before)}"
            reading.refuse(other[key].at, why, "all nodes of a cluster are of one instance type")
    return merged


def _words(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _resources(reading: DstackFile, at: Path) -> dict[str, Any]:
    reading.unknown_keys(at, RESOURCES)
    needs = {**_cpu(reading, (*at, "cpu")), **_gpu(reading, (*at, "gpu"))}
    memory = reading.sizes((*at, "memory"))
    if memory:
        needs["memory"] = Placed(_at_least(memory), (*at, "memory"))
    shm_size = reading.sizes((*at, "shm_size"))
    if shm_size:
        needs["shm_size"] = Placed(shm_size, (*at, "shm_size"))
    disk = (*at, "disk", "size") if isinstance(reading.get((*at, "disk")), dict) else (*at, "disk")
    size = reading.sizes(disk)
    if size:
        needs["disk"] = Placed(_at_least(size), disk)
    return needs


def _cpu(reading: DstackFile, at: Path) -> dict[str, Any]:
    value = reading.get(at)
    if isinstance(value, dict) and not value.keys() <= {"min", "max"}:
        reading.unknown_keys(at, ("arch", "count"))
        tokens = [reading.text((*at, "arch")), reading.counts((*at, "count")) or ""]
    elif isinstance(value, dict):
        tokens = [reading.counts(at) or ""]
    else:
        tokens = reading.text(at).replace(" ", "").split(":")
    needs: dict[str, Any] = {}
    for token in filter(None, tokens):
        if token.lower() in _ARCHITECTURES:
            needs["arch"] = Placed(_ARCHITECTURES[token.lower()], at)
        elif count := reading.range_of(token, at, is_size=False):
            needs["cpus"] = Placed(_at_least(count), at)
    return needs


def _gpu(reading: DstackFile, at: Path) -> dict[str, Any]:
    value = reading.get(at)
    if not isinstance(value, dict):
        return _gpu_text(reading, at) if value is not None else {}
    reading.unknown_keys(at, _GPU)
    vendor = reading.text((*at, "vendor")).lower()
    names = reading.texts((*at, "name"))
    counts, memory = reading.counts((*at, "count")), reading.sizes((*at, "memory"))
    total = reading.sizes((*at, "total_memory"))
    needs = {"gpu_memory": memory, "gpu_memory_total": total, "gpus": counts or "1.."}
    capability = reading.get((*at, "compute_capability"))
    if isinstance(capability, tuple):
        needs["compute_capability"] = ".".join(str(part) for part in capability)
    elif capability is not None:
        needs["compute_capability"] = reading.text((*at, "compute_capability"))
    return _checked_gpu(reading, at, vendor, names, needs)


def _gpu_text(reading: DstackFile, at: Path) -> dict[str, Any]:
    """Return the requirement of `A100:8`, `nvidia:24GB..:2`, `H100,H200:1..8`, `8`."""
    vendor, names = "", tuple[str, ...]()
    needs: dict[str, str | None] = {"gpus": "1.."}
    for token in reading.text(at).replace(" ", "").split(":"):
        if token.lower() in _VENDORS:
            vendor = token.lower()
        elif token[:1].isalpha():
            names = tuple(token.split(","))
        elif any(letter.isalpha() for letter in token):
            needs["gpu_memory"] = reading.range_of(token, at, is_size=True)
        else:
            needs["gpus"] = reading.range_of(token, at, is_size=False)
    return _checked_gpu(reading, at, vendor, names, needs)


def _checked_gpu(
    reading: DstackFile,
    at: Path,
    vendor: str,
    names: tuple[str, ...],
    needs: dict[str, str | None],
) -> dict[str, Any]:
    """Return the requirement; refuse GPUs that AWS does not have."""
    models = {plain_gpu(entry.gpu.model): entry.gpu.model for entry in catalogue().values()}
    models = {plain: model for plain, model in models.items() if plain != "NEURON"}
    known = [name for name in names if plain_gpu(name) in {*models, *_NOT_KEPT}]
    if vendor and _VENDORS.get(vendor, vendor) != "nvidia":
        reading.refuse(at, f"asks for {vendor}'s accelerators", "gpuctl rents NVIDIA's, on AWS")
    elif names and not known:
        hint = f"AWS has {', '.join(models.values())}"
        reading.refuse(at, f"asks for {', '.join(names)}, which AWS does not have", hint)
    placed: dict[str, Any] = {key: Placed(text, at) for key, text in needs.items() if text}
    if known:
        placed["gpu"] = Placed(known, at)
    return placed


def _names(reading: DstackFile, key: str, field: str, pattern: str) -> dict[str, Any]:
    """Return the names that AWS can have; refuse a list in which there is none."""
    names = reading.texts((key,))
    ours = [name for name in names if re.fullmatch(pattern, name)]
    if names and not ours:
        why = f"is {', '.join(names)}, of which AWS has none"
        reading.refuse((key,), why, "gpuctl rents on AWS alone: remove it, or add AWS's")
    return {field: Placed(ours, (key,))} if ours else {}


def _backends(reading: DstackFile) -> None:
    names = reading.texts(("backends",))
    if names and "aws" not in names:
        why = f"is {', '.join(names)}"
        reading.refuse(("backends",), why, "gpuctl rents on AWS alone: remove it, or add aws")


def _fleet(reading: DstackFile, at: Path) -> str:
    return reading.text((*at, "name") if isinstance(reading.get(at), dict) else at)


def _entries(reading: DstackFile, key: str) -> list[Path]:
    return [(key, index) for index in range(len(reading.entries((key,))))]


def _at_least(text: str) -> str:
    """Return `8..` for `8`; a range unchanged."""
    return text if ".." in text else f"{text}.."
