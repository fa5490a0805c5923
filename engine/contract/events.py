"""Any event of a run from its line of JSON: for the supervisor, and for clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from engine.contract import head_events, worker_events
from engine.contract.codec import from_json
from engine.contract.event import Event


def _event_classes() -> Iterator[type[Event]]:
    for value in (*vars(head_events).values(), *vars(worker_events).values()):
        if isinstance(value, type) and issubclass(value, Event) and value.kind:
            yield value


EVENTS = {cls.kind: cls for cls in _event_classes()}
"""The classes of all events by their kinds."""


def event_class(data: Any) -> Optional[type[Event]]:
    """Return the class of the event that a line's JSON data has; None for an unknown kind."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return EVENTS.get(kind) if isinstance(kind, str) else None


def decode(data: Any) -> Optional[Event]:
    """Return the event of a line's JSON data; None for an unknown kind.

    Raises DecodeError, which is a ValueError, for a malformed event of a known kind.
    """
    cls = event_class(data)
    return None if cls is None else from_json(cls, data)
