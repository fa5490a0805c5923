"""What every event of a run is: a class with a kind, and a line of JSON.

`{"kind": "node_lost", "time": …, …}`. `time` is in seconds since the epoch, by the clock of the
machine where the event happened. It is 0.0 until a worker's stream or the journal sets it.
Fields that are marked `internal` are for the head and the next supervisor: they count neither when
two events are compared, nor does a client print them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

from config.bounds import Rank
from engine.contract.codec import to_json

E = TypeVar("E", bound="Event")

_INTERNAL = "internal"


def internal(default: Any) -> Any:
    """Return a field of which only the head and the next supervisor know."""
    return field(default=default, compare=False, metadata={_INTERNAL: True})


def public_fields(event: Event) -> Iterator[str]:
    """Yield the names of the fields that a client prints."""
    return (each.name for each in fields(event) if _INTERNAL not in each.metadata)


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """An event of a run. Each class has its `kind`, its name in JSON.

    No client prints an event that `is_internal`.
    Events of all classes are compared and shown by this class: Python would generate the same for
    each of 50 classes, which is a third of the time that a process takes to import them.
    """

    kind: ClassVar[str] = ""
    is_internal: ClassVar[bool] = False

    @property
    def time(self) -> float:
        """The time of the event; each class has it as its last public field."""
        raise NotImplementedError

    @property
    def sequence(self) -> int:
        """The worker's number of the event, from 1 on; 0 for an event that no worker has sent."""
        return 0

    def __eq__(self, other: object) -> bool:
        """Return whether both are of one class and have the same public values."""
        if type(other) is not type(self):
            return NotImplemented
        return _compared(self) == _compared(other)

    def __hash__(self) -> int:
        """Return the hash of the public values."""
        return hash(_compared(self))

    def __repr__(self) -> str:
        """Return the class and all values, as a dataclass does."""
        values = (f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({', '.join(values)})"


def _compared(event: Event) -> tuple[Any, ...]:
    return tuple(getattr(event, each.name) for each in fields(event) if each.compare)


@dataclass(frozen=True, eq=False, repr=False)
class NodeEvent(Event):
    """An event on the node `rank`."""

    rank: Rank


def change(event: E, **fields: Any) -> E:
    """Return the event with other values of these fields; its class must have them."""
    return replace(event, **fields)


_encode = json.JSONEncoder(default=to_json).encode


def to_line(event: Event, **fields: Any) -> str:
    """Return the event as JSON, with other values of these fields: a line without its end."""
    return _encode({"kind": event.kind, "time": event.time, **vars(event), **fields})
