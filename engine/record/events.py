"""The events of a run for its clients: validated when they are read, and as `--json` prints them.

engine/contract/worker_events.py and head_events.py have their classes.
"""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from config.bounds import Rank, Time
from config.foreign import first_mistake
from config.models import Value
from engine.contract import codec
from engine.contract.event import Event, public_fields
from engine.contract.events import EVENTS, event_class
from engine.contract.head_events import Evidence, OutputJudged, RunQueued, RunStarted
from engine.contract.worker_events import ClockSet, Output, TableWritten, WorkerMessage

FirstEvent = RunQueued | RunStarted
"""The first event of a run's journal."""

_PRINTED_LAST = {
    RunQueued: ("nodes", "place", "ahead"),
    RunStarted: ("nodes",),
    ClockSet: ("rank", "seconds", "text"),
    TableWritten: ("document",),
}
"""Fields without a default that `--json` prints behind those with one."""


def parse_event(line: str | bytes) -> Event | None:
    """Return the event of a journal's line; None for a kind that this version does not know.

    For a malformed event of a known kind it returns a warning about it, which the run reports.
    Raises ValueError for a line that is not JSON, such as an incomplete one.
    """
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    cls = event_class(value)
    if cls is None or issubclass(cls, WorkerMessage):
        return None
    if "time" not in value:
        return _malformed(value, "time: Field required")
    try:
        event: Event = _adapter(cls.kind).validate_python(value)
    except ValidationError as error:
        return _malformed(value, first_mistake(error))
    return event


def has_output(event: Event) -> bool:
    """Return whether the event has what a job printed or wrote."""
    return event.is_internal or isinstance(event, (Output, Evidence, TableWritten))


def event_json(event: Event) -> str:
    """Return the event as one line of JSON for users, without what is for supervisors alone."""
    names = ("time", *(name for name in public_fields(event) if name != "time"))
    last = _PRINTED_LAST.get(type(event), ())
    value = {name: codec.to_json(getattr(event, name)) for name in names if name not in last}
    value |= {name: codec.to_json(getattr(event, name)) for name in last}
    return to_json({"kind": event.kind, **value}, inf_nan_mode="null").decode()


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    """Return the validator of the events of this kind; only those that a command reads are made."""
    return TypeAdapter(EVENTS[kind])


def _malformed(value: dict[str, Any], wrong: str) -> OutputJudged:
    """Return a warning that names the event's kind and the first wrong field, not its value."""
    try:
        at = _Place.model_validate(value)
    except ValidationError:
        at = _Place()
    return OutputJudged(
        time=at.time,
        rank=at.rank,
        level="warning",
        text=f"the head sent a malformed event `{value['kind']}`, which is left out: {wrong};"
        " the head may have another version of gpuctl",
    )


class _Place(Value):
    """Time and rank of an event, for a warning about it."""

    time: Time = 0.0
    rank: Rank = 0
