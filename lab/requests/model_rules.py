"""The rules of botocore's service models: types, required members, ranges, enums, patterns.

botocore checks a part of them before it sends a request, and never maximums, enums and patterns
(botocore.validate.ParamValidator, read 2026-11-23).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

from lab.requests.wire import Request

BROKEN = frozenset({"PlacementGroupArn"})
"""Shapes with a wrong pattern: EC2's for this one has a `^` in its middle, so that no ARN matches
(botocore 1.42's model, service-2.json of ec2/2016-11-15, 2026-11-23)."""

GROWING = frozenset({"InstanceType"})
"""Shapes whose enum AWS extends every few weeks; the lab compares the value with its own types."""

_TYPES: dict[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "blob": (bytes,),
    "timestamp": (datetime,),
}


@dataclass(frozen=True)
class Problem:
    """A rule that a request breaks, at the parameter `name` (`NetworkInterfaces[0].DeviceIndex`).

    `code` is EC2's code for the error if it is a special one.
    """

    kind: Literal["missing", "unknown", "type", "value", "combination"]
    name: str
    text: str
    code: str = ""


def problems(request: Request) -> Iterator[Problem]:
    """Yield what the service's model forbids in the request."""
    shape = request.operation.input_shape
    if shape is not None:
        yield from _check(shape, request.parameters, "")


def _check(shape: Any, value: Any, name: str) -> Iterator[Problem]:
    if not _is_of_type(shape, value):
        text = f"Value ({_shown(shape, value)}) for parameter {name} is no {shape.type_name}"
        yield Problem("type", name, text)
    elif shape.type_name == "structure":
        yield from _check_members(shape, value, name)
    elif shape.type_name == "list":
        yield from _check_range(shape, len(value), name, "items")
        for index, item in enumerate(value):
            yield from _check(shape.member, item, f"{name}[{index}]")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _check(shape.key, key, name)
            yield from _check(shape.value, item, f"{name}.{key}")
    elif shape.type_name == "string":
        yield from _check_text(shape, value, name)
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from _check_range(shape, value, name)


def _is_of_type(shape: Any, value: Any) -> bool:
    kinds = _TYPES[shape.type_name]
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _check_members(shape: Any, value: Mapping[str, Any], name: str) -> Iterator[Problem]:
    inside = f"{name}." if name else ""
    for required in shape.metadata.get("required", ()):
        if required not in value:
            whole = inside + required
            yield Problem("missing", whole, f"The request must contain the parameter {whole}")
    for member, item in value.items():
        whole = inside + member
        if member in shape.members:
            yield from _check(shape.members[member], item, whole)
        else:
            yield Problem("unknown", whole, f"The parameter {whole} is not recognized")


def _check_range(shape: Any, size: float, name: str, of: str = "") -> Iterator[Problem]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    what = f"({size}{f' {of}' if of else ''}) for parameter {name}"
    if least is not None and size < least:
        yield Problem("value", name, f"Value {what} is invalid. Minimum: {least}")
    if most is not None and size > most:
        yield Problem("value", name, f"Value {what} is invalid. Maximum: {most}")


def _check_text(shape: Any, value: str, name: str) -> Iterator[Problem]:
    yield from _check_range(shape, len(value), name, "characters")
    invalid = f"Value ({_shown(shape, value)}) for parameter {name} is invalid."
    allowed = shape.metadata.get("enum")
    if allowed and value not in allowed and shape.name not in GROWING:
        yield Problem("value", name, f"{invalid} Allowed values: {', '.join(allowed)}")
    pattern = shape.metadata.get("pattern")
    if pattern and shape.name not in BROKEN and not _compiled(pattern).fullmatch(value):
        yield Problem("value", name, f"{invalid} It must match {pattern}")


def _shown(shape: Any, value: Any) -> str:
    """Return the value for a message; nothing of a value that the model calls sensitive."""
    return "sensitive" if shape.metadata.get("sensitive") else str(value)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    r"""Return a model's pattern, which is Java's, for Python: \p{L} and \p{N} are nearly its \w."""
    for java, python in ((r"\p{L}", r"\w"), (r"\p{N}", r"\w"), (r"\p{Z}", r"\s")):
        pattern = pattern.replace(java, python)
    return re.compile(pattern)
