"""Parse what others wrote: JSON of a bucket, a head, a node. It is bounded, and of one type.

An error names the first wrong field, never its value: the value is somebody else's text.
"""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

MOST = 1 << 20
"""Bytes of a record: of a run or a cluster in a bucket, or of a line that a head answers."""

_LONGEST = 200

T = TypeVar("T")


class Malformed(ValueError):
    """The error that somebody else's text is not what it has to be; it says why, in a few words."""


def parse_foreign(kind: type[T], text: str | bytes, most: int = MOST) -> T:
    """Return the value that the JSON has; raise Malformed if it is too long or of another form."""
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size > most:
        raise Malformed(too_long(most))
    hashable: Any = kind
    try:
        value: T = _adapter(hashable).validate_json(text)
    except ValidationError as error:
        raise Malformed(first_mistake(error)) from None
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def first_mistake(error: ValidationError) -> str:
    """Return the first wrong field and what is wrong with it, without its value."""
    first = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    message = f"{field}: {first['msg']}" if field else str(first["msg"])
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}..."


def too_long(most: int) -> str:
    """Return what is wrong with a text of more than `most` bytes."""
    return f"it has more than {most >> 20} MiB"
