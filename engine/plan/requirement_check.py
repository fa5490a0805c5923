"""`requires` of a run compared with the cluster: what does not fit, and warnings.

EC2 reports the memory of some GPUs below the number in their name (22.4 GB for an A10G of 24 GB),
so a GPU counts as one of up to 8 % more.

Frameworks and programs that a run needs are compared with those of its nodes too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from config.catalogue.instance_types import (
    COMPUTE_CAPABILITY,
    PRICES_DATE,
    CatalogueEntry,
    catalogue,
)
from config.cluster.job_software import JOB_SOFTWARE
from config.quantities import counted
from config.run.requirements import Requires, parse_range, plain_gpu
from config.run.run_file import Run
from engine.plan.network.presets import is_examined
from engine.plan.network.settings import commands_of
from nodes.inventory import Inventory, Node

_NAMED_MORE = 1.08
_KNOWN_FROM_THE_CATALOGUE = (
    "gpu",
    "gpu_memory",
    "gpu_memory_total",
    "compute_capability",
    "cpus",
    "arch",
    "memory",
    "shm_size",
    "max_price",
)
_ANOTHER = "run it on a cluster that has it, or change the run file"


@dataclass(frozen=True)
class Misfit:
    """A requirement that the cluster does not fulfil."""

    required: str
    actual: str
    remedy: str = _ANOTHER


def misfits(run: Run, inventory: Inventory, nodes: Sequence[Node]) -> Iterator[Misfit]:
    """Yield the requirements of the run that the cluster does not fulfil."""
    needs = run.requires
    if needs is None:
        return
    yield from _place(needs, inventory)
    entry = catalogue().get(inventory.instance_type)
    gpus = min((node.gpus for node in nodes), default=0)
    if needs.gpus and not _has(needs.gpus, gpus):
        remedy = _ANOTHER
        if gpus > (least := int(parse_range(needs.gpus)[0])):
            remedy = f"write {least}.. if the job can use all, or run it on another cluster"
        yield Misfit(f"{needs.gpus} GPUs on a node", counted(gpus, "GPU"), remedy)
    if needs.efa and all(is_examined(node) for node in nodes):
        efa = min((node.efa for node in nodes), default=0)
        if not _has(needs.efa, efa):
            yield Misfit(f"{needs.efa} EFA interfaces of a node", str(efa))
    yield from _disk(needs, entry, inventory)
    if entry is not None:
        yield from _gpu(needs, entry)
        yield from _machine(needs, entry)
        yield from _price(needs, entry, inventory)


def unchecked(run: Run, inventory: Inventory) -> tuple[str, ...]:
    """Return a warning for each part of the requirements that nothing could be compared with."""
    needs = run.requires
    if needs is None:
        return ()
    texts = []
    if needs.clusters and inventory.cluster not in needs.clusters:
        names = ", ".join(needs.clusters)
        texts.append(f"the run file names {names}; this run goes to cluster {inventory.cluster}")
    written = [name for name in _KNOWN_FROM_THE_CATALOGUE if getattr(needs, name)]
    if written and inventory.instance_type not in catalogue():
        what = ", ".join(name.replace("_", " ") for name in written)
        texts.append(f"not compared, {inventory.instance_type} is not in the catalogue: {what}")
    elif needs.max_price is not None and _price_is_open(needs.max_price, inventory):
        kind = inventory.instance_type
        texts.append(f"max price is not compared: what spot {kind} costs today is not known")
    return (*texts, *_disk_warning(needs, inventory))


def _place(needs: Requires, inventory: Inventory) -> Iterator[Misfit]:
    for allowed, actual in (
        (needs.instance_types, inventory.instance_type),
        (needs.regions, inventory.region),
        (needs.zones, inventory.zone),
    ):
        if allowed and actual not in allowed:
            yield Misfit(" or ".join(allowed), actual)
    if needs.spot is not None and needs.spot != inventory.is_spot:
        kinds = {True: "spot instances", False: "on-demand instances"}
        remedy = "remove it, or bring up a cluster with another `capacity.type`"
        yield Misfit(kinds[needs.spot], kinds[inventory.is_spot], remedy)


def _gpu(needs: Requires, entry: CatalogueEntry) -> Iterator[Misfit]:
    gpu = entry.gpu
    if needs.gpu and plain_gpu(gpu.model) not in map(plain_gpu, needs.gpu):
        yield Misfit(f"GPUs {' or '.join(needs.gpu)}", gpu.model if gpu.count else "no GPU")
        return
    if gpu.mem_mib is None or not gpu.count:
        return
    gib = gpu.mem_mib / 1024
    for memory, of, count in (
        (needs.gpu_memory, "GPU", 1),
        (needs.gpu_memory_total, "node's GPUs", gpu.count),
    ):
        if memory and not _has(memory, gib * count, gib * count * _NAMED_MORE):
            remedy = _ANOTHER
            if ".." not in memory and parse_range(memory)[0] < gib * count:
                remedy = f"write {memory}.. if more is as good, or run it on another cluster"
            yield Misfit(f"{memory} of memory of each {of}", f"{gib * count:.4g}GB", remedy)
    code = COMPUTE_CAPABILITY.get(gpu.model)
    if needs.compute_capability and code:
        actual = int(code[:-1]), int(code[-1])
        if actual < tuple(int(part) for part in needs.compute_capability.split(".")):
            yield Misfit(
                f"compute capability {needs.compute_capability}", f"{actual[0]}.{actual[1]}"
            )


def _machine(needs: Requires, entry: CatalogueEntry) -> Iterator[Misfit]:
    memory = entry.memory_mib / 1024
    if needs.arch and needs.arch != entry.arch:
        yield Misfit(f"{needs.arch} processors", entry.arch)
    if needs.cpus and not _has(needs.cpus, entry.vcpus):
        yield Misfit(f"{needs.cpus} vCPUs of a node", str(entry.vcpus))
    if needs.memory and not _has(needs.memory, memory):
        yield Misfit(f"{needs.memory} of memory of a node", f"{memory:g}GB")
    if needs.shm_size and parse_range(needs.shm_size)[0] > memory / 2:
        remedy = "lower it: /dev/shm has half of a node's memory"
        yield Misfit(f"{needs.shm_size} of shared memory", f"{memory / 2:g}GB", remedy)


def _disk(needs: Requires, entry: CatalogueEntry | None, inventory: Inventory) -> Iterator[Misfit]:
    largest = max(inventory.root_gib, entry.local_nvme_gb if entry else 0)
    if needs.disk and inventory.root_gib and parse_range(needs.disk)[0] > largest:
        remedy = "raise `storage.root.gib` of the cluster file"
        yield Misfit(f"{needs.disk} of disk on a node", f"{largest}GB", remedy)


def _disk_warning(needs: Requires, inventory: Inventory) -> Iterator[str]:
    """Yield a warning if the root volume is unknown, or smaller than what the run asks for."""
    if needs.disk is None or parse_range(needs.disk)[0] <= inventory.root_gib:
        return
    entry = catalogue().get(inventory.instance_type)
    if not inventory.root_gib:
        yield f"disk is not compared: the size of cluster {inventory.cluster}'s disks is not known"
    elif entry and parse_range(needs.disk)[0] <= entry.local_nvme_gb:
        yield (
            f"{needs.disk} of disk are on the nodes' own NVMe disks alone"
            f" ({entry.local_nvme_gb}GB), the root volume has {inventory.root_gib}GB"
        )


def _price(needs: Requires, entry: CatalogueEntry, inventory: Inventory) -> Iterator[Misfit]:
    price = entry.price_usd_h
    if needs.max_price is None or price is None or inventory.is_spot:
        return
    if price > needs.max_price:
        yield Misfit(
            f"nodes of at most ${needs.max_price:g}/h",
            f"{inventory.instance_type} at ${price:.2f}/h (us-east-1, {PRICES_DATE})",
        )


def _price_is_open(most: float, inventory: Inventory) -> bool:
    """Return whether only the spot price, which nobody knows here, could be below the limit."""
    price = catalogue()[inventory.instance_type].price_usd_h
    return price is None or (inventory.is_spot and price > most)


def _has(required: str, least: float, most: float | None = None) -> bool:
    """Return whether a value of `least` to `most` is in the range."""
    low, high = parse_range(required)
    return low <= (least if most is None else most) and least <= high


_LAUNCHERS = {"torchrun": "torch", "deepspeed": "deepspeed", "horovod": "horovod", "ray": "ray"}
"""The software of types of runs that start its launcher."""

_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_PYTHON = re.compile(r"""(?:^|[;"'])[ \t]*(?:import|from)[ \t]+(\w+)""", re.MULTILINE)
_SCRIPT = re.compile(r"^(?:import|from)[ \t]+(\w+)", re.MULTILINE)
"""The imports of a Python file that are in no block: one in `try` may fail."""
_MODULE = re.compile(r"(?:^|\s)-m[ \t]+(\w+)")
_COMMAND = re.compile(
    r"(?:^|[;&|(]|\bexec\b|\btime\b)[ \t]*(?:\w+=\S*[ \t]+)*([\w-]+)", re.MULTILINE
)
_BRINGS_ITS_OWN = re.compile(
    r"\b(?:pip3?|uv|conda|mamba|micromamba|pixi|poetry|apt|apt-get|dnf|yum|module|spack)[ \t]"
    r"|\bactivate\b|\b(?:docker|podman|singularity|apptainer|enroot)[ \t]"
    r"|(?:^|\s)PATH=|/bin/(?:python|torchrun)",
    re.MULTILINE,
)
"""Commands that install software, choose another environment, or start a container."""
_FETCHES = re.compile(r"(?:^|[;&|])[ \t]*(?:source|\.)[ \t]|\b(?:curl|wget)[ \t]", re.MULTILINE)
"""Commands that fetch programs, or take another environment from a file."""
_OWN_VARIABLES = frozenset({"PATH", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"})


def missing_software(
    run: Run, inventory: Inventory, nodes: Sequence[Node], scripts: Mapping[str, str]
) -> Iterator[str]:
    """Yield a warning if the run needs software that its nodes do not have.

    `scripts` are the texts of the files that its commands start. There is none for a run with an
    image, for one that brings its software, and for nodes of which nothing is known.
    """
    texts = [_COMMENT.sub("", text) for text in commands_of(run)]
    roles = (run.env, *(role.env for role in run.roles.values()))
    if run.image is not None or any(_OWN_VARIABLES & set(env) for env in roles):
        return
    needed, everything = set(_needed(run, texts, scripts)), (*texts, *scripts.values())
    if "SLURM_JOB_NAME" in run.env:  # a batch script, which gets gpuctl's `srun`
        needed.discard("slurm")
    if any(map(_FETCHES.search, everything)):
        return
    if any(map(_BRINGS_ITS_OWN.search, everything)):
        needed = {key for key in needed & JOB_SOFTWARE.keys() if not JOB_SOFTWARE[key].is_module}
    lacking = [
        software.title
        for key, software in JOB_SOFTWARE.items()
        if key in needed and any(node.software and key not in node.software for node in nodes)
    ]
    if lacking:
        it = "it" if len(lacking) == 1 else "them"
        yield (
            f"run {run.name} needs {' and '.join(lacking)}, and the nodes of cluster"
            f" {inventory.cluster} do not have {it}: name a container `image` with {it} in the run"
            f" file, or install {it} by `setup.commands` of the cluster file"
        )


def _needed(run: Run, texts: Sequence[str], scripts: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys of the software that the run's launcher, commands and scripts need."""
    if run.type in _LAUNCHERS:
        yield _LAUNCHERS[run.type]
    programs = {name: key for key, software in JOB_SOFTWARE.items() for name in software.programs}
    shell = [*texts, *(text for path, text in scripts.items() if not path.endswith(".py"))]
    for text in shell:
        yield from (programs[name] for name in _COMMAND.findall(text) if name in programs)
        yield from _MODULE.findall(text)
        yield from _PYTHON.findall(text)
    for path, text in scripts.items():
        if path.endswith(".py"):
            yield from _SCRIPT.findall(text)
