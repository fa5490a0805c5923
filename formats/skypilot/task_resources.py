"""`resources` of SkyPilot's task: `requires` of a run file, its image and its ports.

A cluster of gpuctl exists when a run begins, so what SkyPilot would look for on all clouds is
compared with it. Of several alternatives any may hold.
"""

import math
import re
from typing import Any

from config.catalogue.instance_types import catalogue
from config.cluster.cluster_file import REGION, ZONE
from config.mistakes import Path
from config.run.image_reference import OTHERS_IMAGES, TAKE_CUDA, WHY_NO_OTHERS
from config.run.requirements import plain_gpu
from formats.converted import Placed
from formats.skypilot.skypilot_file import SkyPilotFile
from formats.skypilot.skypilot_keys import RESOURCE_KEYS

_MEMORY = re.compile(r"(.+)-([0-9]+GB)")
_AT: Path = ("resources",)
_LISTS = ("gpu", "instance_types", "regions", "zones")


def resources(reading: SkyPilotFile) -> dict[str, Any]:
    """Return `requires`, `image` and `ports` of the run file."""
    alternatives = [
        (*_AT, key, index)
        for key in ("any_of", "ordered")
        for index in range(len(reading.entries((*_AT, key))))
    ]
    for at in (_AT, *alternatives):
        reading.check_keys(at, RESOURCE_KEYS)
    needs = _needs(reading, _AT)
    clouds = [
        cloud
        for at in alternatives or [_AT]
        if (cloud := _cloud(reading, at) or _cloud(reading, _AT))
    ]
    if clouds and "aws" not in clouds:
        place = next(
            at
            for at in ((*_AT, key) for key in ("infra", "cloud", "any_of", "ordered"))
            if reading.get(at) is not None
        )
        reading.refuse(
            place,
            f"asks for {', '.join(dict.fromkeys(clouds))}",
            "gpuctl rents on AWS alone: remove it, or add aws",
        )
    ours = [at for at in alternatives if _cloud(reading, at) in ("", "aws")]
    needs |= _either([_needs(reading, at) for at in ours])
    run: dict[str, Any] = {"requires": needs} if needs else {}
    return run | _image(reading) | _ports(reading)


def _either(alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what holds for any of the alternatives: all their names; ranges that are the same."""
    needs: dict[str, Any] = {}
    for key in dict.fromkeys(key for each in alternatives for key in each):
        values = [each[key] for each in alternatives if key in each]
        if len(values) < len(alternatives):
            continue
        if key in _LISTS:
            names = dict.fromkeys(name for value in values for name in value.value)
            needs[key] = Placed(list(names), values[0].at)
        elif all(value.value == values[0].value for value in values):
            needs[key] = values[0]
    return needs


def _needs(reading: SkyPilotFile, at: Path) -> dict[str, Any]:
    needs = _accelerators(reading, (*at, "accelerators")) | _place(reading, at)
    for key, field, unit in (
        ("cpus", "cpus", ""),
        ("memory", "memory", "GB"),
        ("disk_size", "disk", "GB"),
    ):
        if least := reading.least((*at, key), unit):
            needs[field] = Placed(least, (*at, key))
    if name := reading.text((*at, "instance_type")):
        needs["instance_types"] = Placed([name], (*at, "instance_type"))
    if reading.get((*at, "use_spot")) is not None:
        needs["spot"] = Placed(reading.flag((*at, "use_spot")), (*at, "use_spot"))
    return needs


def _cloud(reading: SkyPilotFile, at: Path) -> str:
    """Return the cloud in lower case; empty for any."""
    name = reading.text((*at, "infra")).partition("/")[0] or reading.text((*at, "cloud"))
    return "" if name == "*" else name.lower()


def _place(reading: SkyPilotFile, at: Path) -> dict[str, Any]:
    """Return the region and the zone."""
    if _cloud(reading, at) not in ("", "aws"):
        return {}
    parts = [*reading.text((*at, "infra")).split("/"), "", ""][1:3]
    needs: dict[str, Any] = {}
    for key, field, pattern, part in (
        ("region", "regions", REGION, parts[0]),
        ("zone", "zones", ZONE, parts[1]),
    ):
        place = (*at, "infra") if part else (*at, key)
        name = part or reading.text(place)
        if name and name != "*":
            if re.fullmatch(pattern, name):
                needs[field] = Placed([name], place)
            else:
                reading.refuse(
                    place,
                    f"asks for {key} {name}, which AWS does not have",
                    "write one of AWS's, such as us-east-1",
                )
    return needs


def _accelerators(reading: SkyPilotFile, at: Path) -> dict[str, Any]:
    """Return the GPUs of `H100:8`, `{H100: 8}`, `[A100:8, H100:8]` and `{A100:8, H100:8}`."""
    value = reading.get(at)
    counted: list[tuple[str, float]] = []
    if isinstance(value, dict):
        for name, count in value.items():
            counted += [(name, float(count))] if isinstance(count, (int, float)) else [_pair(name)]
    elif isinstance(value, tuple):
        counted = [_pair(text) for text in reading.texts(at)]
    elif text := reading.text(at):
        counted = [_pair(text)]
    if not counted:
        return {}
    models = {plain_gpu(entry.gpu.model): entry.gpu.model for entry in catalogue().values()}
    del models["NEURON"]
    known = [(name, count) for name, count in counted if plain_gpu(_model(name)) in models]
    if not known:
        names = ", ".join(name for name, _ in counted)
        reading.refuse(at, f"asks for {names}", f"gpuctl rents {', '.join(models.values())}")
        return {}
    gpus = sorted(math.ceil(count) for _, count in known)
    needs = {
        "gpu": Placed(
            list(dict.fromkeys(models[plain_gpu(_model(name))] for name, _ in known)), at
        ),
        "gpus": Placed(f"{gpus[0]}" if gpus[0] == gpus[-1] else f"{gpus[0]}..{gpus[-1]}", at),
    }
    if len(known) == 1 and (memory := _memory(known[0][0])):
        needs["gpu_memory"] = Placed(memory, at)
    return needs


def _pair(text: str) -> tuple[str, float]:
    name, _, count = text.replace(" ", "").partition(":")
    return name, float(count) if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", count) else 1.0


def _model(name: str) -> str:
    match = _MEMORY.fullmatch(name)
    return match[1] if match else name


def _memory(name: str) -> str:
    """Return the memory of a GPU that SkyPilot names by it: `A100-80GB`; its A100 has 40 GB."""
    match = _MEMORY.fullmatch(name)
    return match[2] if match else "40GB" if name.upper() == "A100" else ""


def _image(reading: SkyPilotFile) -> dict[str, Any]:
    at: Path = (*_AT, "image_id")
    if reading.get(at) is None:
        return {}
    text = "" if isinstance(reading.get(at), dict) else reading.text(at)
    reference = text.removeprefix("docker:")
    if reference == text:
        reading.leave_out(at, "`image` of the cluster file chooses what its machines boot")
        return {}
    if OTHERS_IMAGES.search(reference):
        reading.refuse(at, f"is {reference}, which is {WHY_NO_OTHERS}", TAKE_CUDA)
    return {"image": Placed(reference, at)}


def _ports(reading: SkyPilotFile) -> dict[str, Any]:
    at: Path = (*_AT, "ports")
    value = reading.get(at)
    places: list[Path] = (
        [(*at, index) for index in range(len(value))] if isinstance(value, tuple) else [at]
    )
    ports = []
    for place in places if value is not None else ():
        text = reading.text(place)
        if "-" in text:
            reading.leave_out(place, "ports are forwarded one by one: write those that you open")
        else:
            ports.append(Placed(f"*:{text}", place))
    return {"ports": Placed(ports, at)} if ports else {}
