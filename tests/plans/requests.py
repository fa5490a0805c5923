"""The requests that launch a cluster, one line for each field, without what differs each time."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config.cluster.resolved import ID_TAG

GOLDEN = Path(__file__).parent / "golden" / "requests"

TYPES = ("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")
"""The types with EFA that people rent most, with 4, 32, 16 and 8 network cards."""

LAUNCH = ("CreateLaunchTemplate", "RunInstances")

_ID = re.compile(r"\b(ami|cr|lt|subnet|sg)-[0-9a-f]{8,}")
_OTHER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.+]+")


def recorded(folder: Path) -> Iterator[tuple[str, Any]]:
    """The operations and parameters of the requests that the lab recorded in the folder."""
    for file in sorted(folder.glob("*.json")):
        one = json.loads(file.read_text())
        yield one["operation"], one["parameters"]


def launch(folder: Path, cluster: str) -> str:
    """The template of a cluster's nodes and the launch of its first one."""
    found = {
        operation: parameters
        for operation, parameters in recorded(folder)
        if operation in LAUNCH and f'"{cluster}-node{_last(operation)}"' in json.dumps(parameters)
    }
    return "".join(text(operation, found[operation]) for operation in LAUNCH)


def _last(operation: str) -> str:
    return "0" if operation == "RunInstances" else ""


def text(operation: str, parameters: Any) -> str:
    """Each field of a request on a line: its path and its value."""
    lines = [f"{path} = {value}" for path, value in sorted(_fields(parameters), key=_natural)]
    return "\n".join([operation, *(f"  {line}" for line in lines), ""])


def _natural(field: tuple[str, str]) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", field[0])
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if path.endswith("UserData"):
        yield path, "(tests/provision/golden)"
    elif isinstance(value, dict) and set(value) == {"Key", "Value"}:
        varies = value["Key"] == ID_TAG
        yield f"{path}.{value['Key']}", "…" if varies else _steady(value["Value"])
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _fields(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, one in enumerate(_ordered(value)):
            yield from _fields(one, f"{path}[{index}]")
    else:
        yield path, _steady(value)


def _ordered(items: list[Any]) -> list[Any]:
    """Interfaces in the order of their cards; the engine sends them in any."""
    if items and isinstance(items[0], dict) and "DeviceIndex" in items[0]:
        return sorted(items, key=lambda one: (one.get("NetworkCardIndex", 0), one["DeviceIndex"]))
    return items


def _steady(value: Any) -> str:
    if isinstance(value, str):
        return _OTHER.sub("…", _ID.sub(r"\1-…", value))
    return json.dumps(value)
