"""Rules about `storage` that need more than one field's type."""

from collections.abc import Iterator, Mapping
from typing import Any

from config.mistakes import Mistake, Path

SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp"}
    | {"usr", "var"}
)
"""Folders in `/` in which a mount would hide system files; below /opt, /home, /mnt is room."""

IOPS_PER_GIB = 500
MIB_S_PER_IOPS = 0.25
LEAST_IOPS = 3000
"""Maximum values of gp3: AWS, "General Purpose SSD volumes" (EBS User Guide, 2026-11-20)."""

LUSTRE_STEP_GIB = 2400
"""Or 1200 GiB: FSx API Reference, CreateFileSystem, StorageCapacity (2026-11-20)."""


def storage_mistakes(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistakes in a cluster file's `storage` beyond types."""
    storage = data.get("storage")
    if not isinstance(storage, dict):
        return
    root, shared = storage.get("root"), storage.get("shared")
    if isinstance(root, dict):
        yield from _root(root)
    if isinstance(shared, dict):
        yield from _shared(shared, str(data.get("image")))
        yield from _network(shared, data.get("network"))
    yield from _buckets(storage, data.get("instance_profile"))
    yield from _folders(storage)


def _root(root: Mapping[str, Any]) -> Iterator[Mistake]:
    gib, iops = root.get("gib", 200), root.get("iops", LEAST_IOPS)
    throughput = root.get("throughput", 125)
    if not (isinstance(gib, int) and isinstance(iops, int) and isinstance(throughput, int)):
        return
    if iops > LEAST_IOPS and iops > gib * IOPS_PER_GIB:
        message = f"'storage.root.iops' is {iops}, a gp3 of {gib} GiB has {gib * IOPS_PER_GIB}"
        hint = f"set gib to {-(-iops // IOPS_PER_GIB)} or more, or fewer iops"
        yield Mistake("E213", message, hint, ("storage", "root", "iops"))
    if throughput > iops * MIB_S_PER_IOPS:
        most = int(iops * MIB_S_PER_IOPS)
        message = f"'storage.root.throughput' is {throughput}, a gp3 of {iops} iops has {most}"
        hint = f"set iops to {throughput * 4} or more, or less throughput"
        yield Mistake("E213", message, hint, ("storage", "root", "throughput"))


def _shared(shared: Mapping[str, Any], image: str) -> Iterator[Mistake]:
    identity, is_lustre = shared.get("id"), shared.get("type") == "fsx-lustre"
    if is_lustre and image == "stock-debian-12":
        message = "'storage.shared.type' is fsx-lustre, for which Debian has no client"
        yield Mistake("E214", message, "use efs, or another image", ("storage", "shared", "type"))
    if identity is not None:
        yield from _without_effect(shared, f"{identity} exists already")
    elif shared.get("type") == "efs":
        yield from _without_effect(shared, "efs grows and scales by itself")
    elif is_lustre:
        yield from _new_lustre(shared)


def _without_effect(shared: Mapping[str, Any], reason: str) -> Iterator[Mistake]:
    for key in ("deployment", "capacity_gib", "throughput"):
        if key in shared:
            message = f"'storage.shared.{key}' has no effect: {reason}"
            yield Mistake("E214", message, "remove it", ("storage", "shared", key), on_key=True)


def _new_lustre(shared: Mapping[str, Any]) -> Iterator[Mistake]:
    at = ("storage", "shared")
    if "throughput" in shared and shared.get("deployment") != "persistent":
        message = "'storage.shared.throughput' has no effect: a scratch one has 200 MB/s per TiB"
        yield Mistake(
            "E214",
            message,
            "set deployment to persistent, or remove it",
            (*at, "throughput"),
            on_key=True,
        )
    size = shared.get("capacity_gib")
    if isinstance(size, int) and size > 1200 and size % LUSTRE_STEP_GIB:
        below = max(size // LUSTRE_STEP_GIB * LUSTRE_STEP_GIB, 1200)
        message = f"'storage.shared.capacity_gib' is {size}, no size of FSx for Lustre"
        hint = f"use {below} or {(size // LUSTRE_STEP_GIB + 1) * LUSTRE_STEP_GIB}"
        yield Mistake("E213", message, hint, (*at, "capacity_gib"))


def _network(shared: Mapping[str, Any], network: Any) -> Iterator[Mistake]:
    """Yield a mistake if the nodes of a file system that exists get another VPC."""
    exists = isinstance(network, dict) and ("vpc" in network or "subnet" in network)
    if shared.get("id") is not None and not exists:
        message = (
            f"'storage.shared.id' is {shared['id']}, which exists in a VPC, and gpuctl would create"
            " another VPC for the nodes"
        )
        hint = "name its VPC: `network: {vpc: vpc-…}`"
        yield Mistake("E214", message, hint, ("storage", "shared", "id"))


def _buckets(storage: Mapping[str, Any], profile: Any) -> Iterator[Mistake]:
    """Yield a mistake if nodes without a role are to read buckets."""
    if storage.get("buckets") and profile is None:
        message = "'storage.buckets' needs a role, and without instance_profile nodes have none"
        hint = "name an instance profile that exists: `instance_profile: NAME`"
        yield Mistake("E214", message, hint, ("storage", "buckets"), on_key=True)


def _folders(storage: Mapping[str, Any]) -> Iterator[Mistake]:
    shared = storage.get("shared")
    folders: dict[Path, Any] = {("storage", "scratch"): storage.get("scratch", "/scratch")}
    if isinstance(shared, dict):
        folders = {("storage", "shared", "path"): shared.get("path", "/shared"), **folders}
    for at, folder in folders.items():
        if isinstance(folder, str) and folder.strip("/").split("/")[0] in SYSTEM:
            hint = "use a new folder, such as /shared, or one below /mnt, /opt or /home"
            yield Mistake("E215", f"'{'.'.join(map(str, at))}' is in a system folder", hint, at)
    shared_folder, scratch = (str(folder) for folder in (*folders.values(), "")[:2])
    if scratch and (
        f"{shared_folder}/".startswith(f"{scratch}/")
        or f"{scratch}/".startswith(f"{shared_folder}/")
    ):
        message = f"'storage.shared.path' is {shared_folder}, 'storage.scratch' {scratch}"
        yield Mistake("E215", message, "keep them apart", ("storage", "shared"))
