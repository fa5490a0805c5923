"""Types with bounds: `Annotated` metadata that needs only the standard library.

pydantic reads them from every model and every dataclass that has such a type
(`__get_pydantic_core_schema__`, https://docs.pydantic.dev/latest/concepts/types/, 2026-11-27).
The agent on a node has no pydantic and ignores them; engine/session/bundle.py takes this file with
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

Schema = dict[str, Any]
Handler = Callable[[Any], Schema]


@dataclass(frozen=True)
class Range:
    """Bounds of a number: from `least` to `most`. A finite number; with `strict` no text of one."""

    least: float
    most: float
    strict: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Handler) -> Schema:
        """Return pydantic's schema of the number with these bounds."""
        schema: Schema = {**handler(source), "ge": self.least, "le": self.most}
        if schema["type"] == "float":
            schema["allow_inf_nan"] = False
        if self.strict:
            schema["strict"] = True
        return schema


@dataclass(frozen=True)
class Length:
    """The most characters that a text may have."""

    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Handler) -> Schema:
        """Return pydantic's schema of the text with this bound."""
        return {**handler(source), "max_length": self.most}


@dataclass(frozen=True)
class Pattern:
    """The regular expression that a text matches."""

    expression: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Handler) -> Schema:
        """Return pydantic's schema of the text with this pattern."""
        return {**handler(source), "pattern": self.expression}


Time = Annotated[float, Range(0, 253_402_300_799, strict=True)]
"""Seconds since 1970, up to the end of the year 9999: the times that `datetime` has."""

Rank = Annotated[int, Range(0, 999_999, strict=True)]
"""A node's or process's number in its run."""

Whole = Annotated[int, Range(-(1 << 63), (1 << 63) - 1)]
"""A number that SQLite can keep."""

Dollars = Annotated[float, Range(0, 1e12)]

ExitCode = Annotated[int, Range(-256, 256)]

Text = Annotated[str, Length(64 << 10)]
"""A reason, a name or a path in words."""

PORT = r"^(([0-9]{1,5}|\*):)?[0-9]{1,5}$"

Port = Annotated[str, Pattern(PORT)]
"""A port of node 0, or one of this machine and one of node 0 (`80:8000`)."""
