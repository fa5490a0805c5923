"""Rules about cluster files that need more than one field's type: raw data in, mistakes out.

The rules run even if the models refuse the rest, so that all diagnostics come at once. Those of
`storage` and of files with `hosts` are at the end.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from config.catalogue.instance_types import (
    BEFORE_TURING,
    catalogue,
    families,
    is_instance_type,
    may_be_misspelled,
    nearest,
)
from config.catalogue.releases import Software, commit, newest
from config.cluster.cluster_file import DEFAULT_IMAGE, RELEASE, TESTS_RELEASE, ZONE, Cluster
from config.cluster.hosts_file import HostsCluster
from config.command_rules import command_mistakes
from config.errors import InputError
from config.folded_names import expand
from config.mistakes import Mistake, Path, path_text
from config.yaml.hints import shorten
from config.yaml.marked_yaml import Ambiguous

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
        yield from _storage_network(shared, data.get("network"))
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


def _storage_network(shared: Mapping[str, Any], network: Any) -> Iterator[Mistake]:
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


Data = Mapping[str, Any]

WITH_OPEN_DRIVER = ("dlami-", "stock-ubuntu-")
"""The beginnings of images that have NVIDIA's open driver, or get it from the set-up."""


def cluster_mistakes(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes in a cluster file beyond types."""
    yield from _instance_type(data)
    yield from _zones(data)
    yield from _capacity(data)
    yield from _network(data)
    yield from _budget(data)
    yield from _tags(data)
    yield from _pins(data)
    yield from _commits(data)
    yield from storage_mistakes(data)
    yield from command_mistakes(data)


def ambiguous_mistakes(data: Any, at: Path = ()) -> Iterator[Mistake]:
    """Yield a mistake for each bare value that YAML readers understand differently."""
    if isinstance(data, Ambiguous):
        written = shorten(data)
        hint = f"quote it: '{written}'"
        if not data[0].isalpha():
            hint = f"write a plain decimal number, or quote it ('{written}') if text is meant"
        why = "which YAML readers understand differently"
        message = f"'{path_text(at)}' is a bare {written}, {why}"
        yield Mistake("E104", message, hint, at)
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from ambiguous_mistakes(value, (*at, key))
    elif isinstance(data, tuple):
        for index, value in enumerate(data):
            yield from ambiguous_mistakes(value, (*at, index))


def _instance_type(data: Data) -> Iterator[Mistake]:
    name = data.get("instance_type")
    if not isinstance(name, str) or isinstance(name, Ambiguous):
        return
    near = nearest(name)
    hint = f"nearest: {', '.join(near)}" if near else f"known families: {', '.join(families())}"
    if not is_instance_type(name):
        yield Mistake("E204", f"unknown instance type '{name}'", hint, ("instance_type",))
    elif may_be_misspelled(name):
        message = f"gpuctl's catalogue has no instance type '{name}'; `gpuctl plan` asks EC2"
        yield Mistake("W205", message, hint, ("instance_type",))
    model, image = BEFORE_TURING.get(name.partition(".")[0]), data.get("image", DEFAULT_IMAGE)
    if model and str(image).startswith(WITH_OPEN_DRIVER):
        message = (
            f"image '{image}' has NVIDIA's open driver, and no driver for the {model} of '{name}'"
        )
        hint = (
            "choose a newer type such as p4d.24xlarge, or name an image of yours (ami-…) with"
            " NVIDIA's proprietary driver, of branch 580 or older"
        )
        yield Mistake("E231", message, hint, ("instance_type",))


def _capacity(data: Data) -> Iterator[Mistake]:
    """Yield mistakes: a reservation needs an id and is in one zone; bought capacity has no id."""
    capacity = data.get("capacity")
    if not isinstance(capacity, dict):
        return
    kind = capacity.get("type", "on-demand")
    if kind in ("reservation", "capacity-block"):
        if "id" not in capacity:
            message = f"'capacity.type' is {kind}, but 'capacity.id' is missing"
            hint = "write the reservation's id (cr-…): `gpuctl capacity TYPE` lists yours"
            yield Mistake("E210", message, hint, ("capacity",), on_key=True)
        if "zones" in capacity:
            message = f"'capacity.zones' has no effect: a {kind} lies in one zone"
            yield Mistake("E210", message, "remove it", ("capacity", "zones"), on_key=True)
    elif kind in ("on-demand", "spot") and "id" in capacity:
        message = f"'capacity.id' has no effect: 'capacity.type' is {kind}"
        hint = "set the type to reservation or capacity-block, or remove the id"
        yield Mistake("E210", message, hint, ("capacity", "id"), on_key=True)


WIDE = 16
"""Prefix length: a wider range has more addresses than one person's network."""


def _network(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes in `network`, and a warning for an `ssh_from` that is too wide."""
    network = data.get("network")
    if not isinstance(network, dict):
        return
    if "cidr" in network and ("vpc" in network or "subnet" in network):
        message = "'network.cidr' has no effect: the network exists already"
        yield Mistake("E212", message, "remove it", ("network", "cidr"), on_key=True)
    allowed = network.get("ssh_from")
    if network.get("access") == "ssm":
        yield from _ssm(data, network)
    if network.get("access") == "private" and allowed is None:
        message = "'network.access' is private, but 'network.ssh_from' is missing"
        hint = "write the private IPv4 range that you come from (10.0.0.0/16)"
        yield Mistake("E211", message, hint, ("network", "access"))
    try:
        length = ipaddress.IPv4Network(str(allowed)).prefixlen
    except ValueError:
        return
    if length < WIDE:
        who = "the whole world" if length == 0 else f"{2 ** (32 - length)} addresses"
        message = f"'network.ssh_from' lets {who} try to ssh in"
        hint = "leave it out for your own address alone, or write a narrower range"
        yield Mistake("W202", message, hint, ("network", "ssh_from"))


def _ssm(data: Data, network: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield mistakes with `ssm`, which opens no port and needs an agent that Debian's image lacks.

    "AMIs with SSM Agent preinstalled" (Systems Manager User Guide, 2026-11-20).
    """
    if network.get("ssh_from") is not None:
        message = "'network.ssh_from' has no effect: with 'network.access' ssm no port is open"
        yield Mistake("E212", message, "remove it", ("network", "ssh_from"), on_key=True)
    if data.get("image") == "stock-debian-12":
        message = "'network.access' is ssm, but stock-debian-12 has no SSM agent"
        yield Mistake(
            "E212", message, "use another image, or another access", ("network", "access")
        )


def _zones(data: Data) -> Iterator[Mistake]:
    capacity, region = data.get("capacity"), data.get("region")
    zones = capacity.get("zones") if isinstance(capacity, dict) else None
    if not isinstance(zones, tuple) or not isinstance(region, str):
        return
    for index, zone in enumerate(zones):
        if isinstance(zone, str) and re.match(ZONE, zone) and not zone.startswith(region):
            message = f"zone '{zone}' is not in region '{region}'"
            hint = f"use zones of {region}, or change the region"
            yield Mistake("E208", message, hint, ("capacity", "zones", index))


_BUILT: Mapping[Software, tuple[str, str]] = {
    "nccl": (RELEASE, "nccl"),
    "nccl_tests": (TESTS_RELEASE, "nccl-tests"),
}
"""Software that nodes may build: the form of its pin, and its repository."""


def _commits(data: Data) -> Iterator[Mistake]:
    """Yield a mistake for each release to build of which gpuctl does not know the commit."""
    software = data.get("software")
    if not isinstance(software, dict):
        return
    for name, (form, repository) in _BUILT.items():
        pin = software.get(name)
        if name == "nccl" and data.get("image") != "stock-ubuntu-24.04":
            continue  # the image has it
        if isinstance(pin, str) and re.match(form, pin) and commit(name, pin) is None:
            message = f"'software.{name}' is {pin}, a release whose commit gpuctl does not know"
            hint = (
                f"write {pin}@COMMIT with the whole commit of the tag v{pin} in"
                f" https://github.com/NVIDIA/{repository}, or a known release up to {newest(name)}"
            )
            yield Mistake("E209", message, hint, ("software", name))


GPU_PINS = ("driver", "efa", "nccl", "nccl_tests")


def _pins(data: Data) -> Iterator[Mistake]:
    """Yield a mistake for each version that would have no effect."""
    software, image = data.get("software"), data.get("image")
    if not isinstance(software, dict):
        return
    entry = catalogue().get(str(data.get("instance_type")))
    reason = "has no GPU software" if image == "stock-debian-12" else ""
    if entry is not None and entry.gpu.count == 0:
        image, reason = data["instance_type"], "has no GPU"
    for pin in GPU_PINS if reason else ():
        if pin in software:
            message = f"'software.{pin}' has no effect: {image} {reason}"
            yield Mistake("E209", message, "remove it", ("software", pin))
    if image == "stock-debian-12" and software.get("openmpi") == 5:
        message = "'software.openmpi' is 5, Debian 12 has Open MPI 4"
        yield Mistake("E209", message, "use 4, or another image", ("software", "openmpi"))


def _budget(data: Data) -> Iterator[Mistake]:
    budget, lifetime = data.get("budget"), data.get("lifetime")
    if isinstance(budget, dict) and "max_total" in budget and lifetime is None:
        message = "'budget.max_total' requires a 'lifetime.max'"
        yield Mistake("E230", message, "set lifetime.max (8h, 2d)", ("budget", "max_total"))


_TAG_SIGNS = "_.:/=+-@"
"""The signs that IAM, EFS and FSx allow in tags, next to letters, digits and spaces.

EC2 allows all. The others have one pattern for keys and values,
`[\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]`: IAM's tagKeyType and tagValueType, EFS's and FSx's TagKey and
TagValue in botocore's models, and
https://docs.aws.amazon.com/IAM/latest/APIReference/API_Tag.html,
https://docs.aws.amazon.com/efs/latest/ug/API_Tag.html (2026-11-26)."""


def _tags(data: Data) -> Iterator[Mistake]:
    """Yield the tags that a service refuses which the cluster needs in addition to EC2."""
    network, storage, tags = (data.get(name) for name in ("network", "storage", "tags"))
    services = []
    is_ssm = isinstance(network, dict) and network.get("access") == "ssm"
    if is_ssm and data.get("instance_profile") is None:  # else gpuctl creates no role
        services.append("IAM")
    shared = storage.get("shared") if isinstance(storage, dict) else None
    if isinstance(shared, dict):
        services.append({"efs": "EFS"}.get(str(shared.get("type")), "FSx"))
    if not isinstance(tags, dict) or not services:
        return
    if "IAM" in services:
        yield from _equal_keys(tags)
    for key, value in tags.items():
        for text, on_key in ((key, True), (value, False)):
            refused = [sign for sign in str(text) if not _is_tag_sign(sign)]
            if refused and isinstance(text, str):
                what = f"the tag's key is {text!r}" if on_key else f"'tags.{key}' is {text!r}"
                message = f"{what}, and {' and '.join(services)} refuses {refused[0]!r} in a tag"
                hint = f"use letters, digits, spaces and {' '.join(_TAG_SIGNS)}"
                yield Mistake("E203", message, hint, ("tags", key), on_key=on_key)


def _equal_keys(tags: Mapping[Any, Any]) -> Iterator[Mistake]:
    """Yield the keys that IAM takes for another tag's, because they differ in case alone.

    CreateRole answers "Duplicate tag keys found. Please note that Tag keys are case insensitive."
    (https://github.com/kubernetes/kops/issues/11727, 2026-11-26). `Name` is gpuctl's own.
    """
    known = {"name": "Name"}
    for key in tags:
        other = known.setdefault(str(key).lower(), key)
        if key not in (other, "Name"):
            message = f"the tags {other!r} and {key!r} differ in case alone, and IAM refuses that"
            yield Mistake("E203", message, "choose another key", ("tags", key), on_key=True)


def _is_tag_sign(sign: str) -> bool:
    return sign in _TAG_SIGNS or unicodedata.category(sign)[0] in "LZN"


RENTED_ONLY = tuple(key for key in Cluster.model_fields if key not in HostsCluster.model_fields)
"""Keys of clusters that gpuctl rents: they say nothing about machines that exist."""


def hosts_mistakes(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistakes in a cluster file with `hosts` beyond types."""
    for key in RENTED_ONLY:
        if key in data:
            message = f"'{key}' is for a cluster that gpuctl rents, and this file has 'hosts'"
            yield Mistake("E232", message, "remove it, or remove 'hosts'", (key,), on_key=True)
    hosts = data.get("hosts")
    if not isinstance(hosts, tuple):
        return
    known: dict[str, int] = {}
    for number, host in enumerate(hosts):
        if not isinstance(host, dict) or not isinstance(host.get("address"), str):
            continue
        try:
            addresses = expand(host["address"])
        except InputError:
            continue  # the field's own check reports it
        if len(addresses) > 1 and "internal" in host:
            message = f"'internal' is one address, and 'address' means {len(addresses)} hosts"
            hint = "write an entry for each host"
            yield Mistake("E233", message, hint, ("hosts", number, "internal"))
        for address in addresses:
            first = known.setdefault(address, number)
            if first != number:
                message = f"host {address} is in 'hosts[{first}]' too"
                yield Mistake("E233", message, "remove one", ("hosts", number, "address"))
