"""Parse what others wrote: JSON of a bucket, a head, a node. It is bounded, and of one type.

An error names the first wrong field, never its value: the value is somebody else's text.
"""

from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError

MOST = 1 << 20
"""Bytes of a record: of a run or a cluster in a bucket, or of a line that a head answers."""

_LONGEST = 200

Time = Annotated[float, Field(strict=True, ge=0, le=253_402_300_799, allow_inf_nan=False)]
"""Seconds since 1970, up to the end of the year 9999: the times that `datetime` has."""

Rank = Annotated[int, Field(strict=True, ge=0, lt=1_000_000)]
"""A node's or process's number in its run."""

Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
"""A number that SQLite can keep."""

Dollars = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]

ExitCode = Annotated[int, Field(ge=-256, le=256)]

Text = Annotated[str, StringConstraints(max_length=64 << 10)]
"""A reason, a name or a path in words."""

T = TypeVar("T", bound=BaseModel)


class Malformed(ValueError):
    """The error that somebody else's text is not what it has to be; it says why, in a few words."""


def parse_foreign(model: type[T], text: str | bytes, most: int = MOST) -> T:
    """Return the value that the JSON has; raise Malformed if it is too long or of another form."""
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size > most:
        raise Malformed(too_long(most))
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise Malformed(first_mistake(error)) from None


def first_mistake(error: ValidationError, above: int = 0) -> str:
    """Return the first wrong field and what is wrong with it, without its value.

    `above` is the number of steps to it that are not named.
    """
    first = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"][above:])
    message = f"{field}: {first['msg']}" if field else str(first["msg"])
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}..."


def too_long(most: int) -> str:
    """Return what is wrong with a text of more than `most` bytes."""
    return f"it has more than {most >> 20} MiB"
