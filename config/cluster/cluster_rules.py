"""Rules about cluster files that need more than one field's type: raw data in, mistakes out.

The rules run even if the models refuse the rest, so that all diagnostics come at once.
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
from config.cluster.cluster_file import DEFAULT_IMAGE, RELEASE, TESTS_RELEASE, ZONE
from config.cluster.storage_rules import storage_mistakes
from config.command_rules import command_mistakes
from config.mistakes import Mistake, Path, path_text
from config.yaml.hints import shorten
from config.yaml.marked_yaml import Ambiguous

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
