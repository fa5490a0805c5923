"""What a plan says about the software of its nodes: versions, and combinations nobody has seen."""

from collections.abc import Iterator

from config.catalogue.image_software import IMAGES, PLUGINS, TESTED, release_of, unseen
from config.catalogue.releases import version
from config.cluster.cluster_file import Cluster
from config.cluster.job_software import planned_software
from config.cluster.resolved import Resolved
from provision.setup.software.script import CUDA, DRIVER, EFA, NCCL, UBUNTU

_UNKNOWN = "the image's own; AWS's notes do not name it"


def software_rows(resolved: Resolved) -> tuple[tuple[str, str], ...]:
    """Return name and version of the GPU's software on a node, by AWS's notes or gpuctl's pins.

    There are none for a type without GPUs, and for an image of which gpuctl knows no notes. The
    row `source` says where they are from.
    """
    if not resolved.instance_type.gpus:
        return ()
    rows = tuple(_rows(resolved))
    return (*rows, *_missing_row(resolved.cluster)) if rows else ()


def _missing_row(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield a row if it is known that the nodes have no PyTorch, with the two ways to have it."""
    software = planned_software(cluster)
    if software and "torch" not in software:
        yield (
            "PyTorch",
            "none: name a container `image` in the run file, or install it by `setup.commands`",
        )


def _rows(resolved: Resolved) -> Iterator[tuple[str, str]]:
    cluster, pins = resolved.cluster, resolved.cluster.software
    known = IMAGES.get(cluster.image)
    openmpi = f"{pins.openmpi}, as the file says" if pins.openmpi else ""
    if cluster.image == UBUNTU:
        efa = pins.efa or EFA
        yield "driver", f"branch {pins.driver or DRIVER}"
        yield "CUDA", CUDA.replace("-", ".")
        yield "EFA's installer", efa
        yield "NCCL's plugin", _plugin(efa)
        yield "NCCL", version(pins.nccl or NCCL)
        yield "Open MPI", openmpi or "4"
        yield "source", "gpuctl's set-up installs these"
    elif known is not None:
        yield "kernel", known.kernel
        yield "driver", known.driver
        yield "CUDA", known.cuda
        yield "EFA's installer", known.efa
        yield "NCCL's plugin", _plugin(known.efa)
        yield "NCCL", f"{version(pins.nccl)}, as the file says" if pins.nccl else _UNKNOWN
        yield "Open MPI", openmpi or "4 and 5 of EFA's installer; `mpirun` is 4"
        release = release_of(resolved.image.name)
        other = "" if release == known.release else f"; the image is of {release or 'no date'}"
        yield (
            "source",
            f"AWS's release notes of {known.release} for ARM64; gpuctl assumes the same for x86_64"
            f"{other}",
        )


def _plugin(efa: str) -> str:
    plugin = PLUGINS.get(efa, "")
    if not plugin:
        return f"the one in EFA's installer {efa}"
    tested = TESTED.get(plugin)
    return f"{plugin}, tested with NCCL {', '.join(tested)}" if tested else plugin


def software_warnings(cluster: Cluster, ami_name: str, *, has_efa: bool) -> Iterator[str]:
    """Yield a warning for each version that nobody has seen with the others, or that is missing."""
    pins, known = cluster.software, IMAGES.get(cluster.image)
    if not has_efa:
        return
    efa, nccl = pins.efa or EFA, version(pins.nccl or NCCL)
    if known is not None:
        if known.release != release_of(ami_name):
            return
        efa, nccl = known.efa, version(pins.nccl or "")
        for name, pin, actual in (
            ("efa", pins.efa, known.efa),
            ("driver", pins.driver, known.driver.partition(".")[0]),
        ):
            if pin is not None and pin != actual:
                yield (
                    f"software.{name} is {pin}, and image {cluster.image} has {actual} by AWS's"
                    f" notes of {known.release}: `up` fails if it has another than the file says"
                )
    elif cluster.image != UBUNTU:
        return
    if nccl and (why := unseen(efa, nccl)):
        yield f"NCCL {nccl} and EFA's installer {efa} have not been seen together: {why}"
