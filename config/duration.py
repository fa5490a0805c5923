"""Durations and sizes as people write them: `90s`, `30m`, `8h`, `2d`; 8, `64K`, `1M`, `8G`."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from config.errors import InputError
from config.mistakes import Mistake, refusal
from config.models import number_text

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PATTERN = re.compile(r"([1-9][0-9]{0,5})([smhd])", re.ASCII)
_FORM = "a whole number (at most 6 digits) and a unit: s, m, h or d"


def parse_duration(value: Any) -> int:
    """Return the seconds of `30m`; raises ValueError for anything but a number and a unit."""
    match = _PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {_FORM} (30m, 8h)")
    return int(match[1]) * _UNITS[match[2]]


def given_duration(text: str, name: str, example: str) -> int:
    """Return the seconds of an option or an argument; InputError, which names it, if it is none."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"{name} is '{text}': it {error}", f"write {example}") from None


def format_duration(seconds: int) -> str:
    """Return `8h` for 28800: the largest unit that divides it."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds // _UNITS[unit]}{unit}"
    return f"{seconds}s"


def _from_file(value: Any) -> int:
    try:
        return parse_duration(value)
    except ValueError:
        raise refusal(Mistake("E203", "which is no duration", f"write {_FORM} (30m, 8h)")) from None


Duration = Annotated[
    int,
    BeforeValidator(_from_file),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,5}[smhd]$"}),
]
"""Seconds, written as `30m` in YAML and in stored JSON."""


SIZE = r"^[1-9][0-9]{0,14}[KMG]?$"
_FACTORS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int:
    """Return bytes as nccl-tests does: K, M, G are powers of 1024 (parsesize in its common.cu)."""
    return int(text.rstrip("KMG")) * _FACTORS.get(text[-1], 1)


Size = Annotated[
    str,
    Field(pattern=SIZE),
    BeforeValidator(number_text),
    WithJsonSchema({"type": ["string", "integer"], "minimum": 1, "pattern": SIZE}),
]
