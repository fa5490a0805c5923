"""Rules about files that one field's type cannot tell: they see raw data and return faults.

They run whether or not the models accept the rest, so that all complaints come at once.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from config.catalogue import catalogue, nearest
from config.cluster import ZONE
from config.faults import Fault, Path, spelled
from config.marked_yaml import Ambiguous

Data = Mapping[str, Any]


def cluster_faults(data: Data) -> Iterator[Fault]:
    """What is wrong with a cluster file beyond types."""
    yield from _instance_type(data)
    yield from _zones(data)


def run_faults(data: Data) -> Iterator[Fault]:
    """What is wrong with a run file beyond types; the image is a warning."""
    image = data.get("image")
    if isinstance(image, str):
        yield Fault(
            "W201",
            f"image '{image}' is not used yet: the job runs on the host",
            "have what it needs on the nodes (software.setup of the cluster file)",
            ("image",),
        )


def ambiguous_faults(data: Any, at: Path = ()) -> Iterator[Fault]:
    """A complaint for each bare value that YAML readers do not understand alike."""
    if isinstance(data, Ambiguous):
        hint = f"quote it: '{data}'"
        if data[0] in "+-.0123456789":
            hint = f"write a plain decimal number, or quote it ('{data}') if text is meant"
        message = f"'{spelled(at)}' is a bare {data}, which YAML readers understand differently"
        yield Fault("E104", message, hint, at)
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from ambiguous_faults(value, (*at, key))
    elif isinstance(data, tuple):
        for index, value in enumerate(data):
            yield from ambiguous_faults(value, (*at, index))


def _instance_type(data: Data) -> Iterator[Fault]:
    name = data.get("instance_type")
    if not isinstance(name, str) or isinstance(name, Ambiguous) or name in catalogue():
        return
    near = nearest(name)
    families = dict.fromkeys(known.partition(".")[0] for known in catalogue())
    hint = f"nearest: {', '.join(near)}" if near else f"known families: {', '.join(families)}"
    yield Fault("E204", f"unknown instance type '{name}'", hint, ("instance_type",))


def _zones(data: Data) -> Iterator[Fault]:
    capacity, region = data.get("capacity"), data.get("region")
    zones = capacity.get("zones") if isinstance(capacity, dict) else None
    if not isinstance(zones, tuple) or not isinstance(region, str):
        return
    for index, zone in enumerate(zones):
        if isinstance(zone, str) and re.match(ZONE, zone) and not zone.startswith(region):
            message = f"zone '{zone}' is not in region '{region}'"
            hint = f"use zones of {region}, or change the region"
            yield Fault("E208", message, hint, ("capacity", "zones", index))
