"""dstack's `retry` as that of a run file.

Its events and fields are in ProfileRetry (core/models/profiles.py of dstackai/dstack). For them a
node that does not answer is an `error`, on spot capacity an `interruption`
(server/background/pipeline_tasks/runs/active.py). dstack counts no attempts: `duration` is the
time since the last failure (docs/docs/concepts/tasks.md at 0219c0bb; all read 2026-11-23).
"""

from typing import Any

from config.mistakes import Path
from config.run.retry import CAUSES, MOST_ATTEMPTS
from formats.converted import Placed
from formats.dstack.dstack_file import DstackFile

_DSTACKS = ("on_events", "duration")
_ERROR = tuple(cause for cause in CAUSES if cause != "preemption")
_EVENTS = {"no-capacity": (), "interruption": ("preemption", "node-lost"), "error": _ERROR}

RETRY_FORMS: tuple[dict[str, Any], ...] = (
    {"type": "boolean"},
    {
        "type": "object",
        "properties": {
            "on_events": {"type": "array", "items": {"enum": list(_EVENTS)}},
            "duration": {"type": ["string", "integer"]},
        },
        "additionalProperties": False,
    },
)
"""The JSON Schema of dstack's forms."""


def is_dstacks(retry: Any) -> bool:
    """Return whether the value of `retry` has a form that gpuctl's run files do not have."""
    return isinstance(retry, bool) or (
        isinstance(retry, dict) and not retry.keys().isdisjoint(_DSTACKS)
    )


def retry(reading: DstackFile) -> dict[str, Any]:
    """Return the run file's `retry`; nothing if the task is not retried."""
    at: Path = ("retry",)
    value = reading.get(at)
    if isinstance(value, dict) and not is_dstacks(value):
        return {"retry": Placed(value, at)}
    if not isinstance(value, dict) and not reading.flag(at):
        return {}
    policy: dict[str, Any] = {"attempts": MOST_ATTEMPTS}
    if isinstance(value, dict):
        reading.unknown_keys(at, _DSTACKS)
        events = reading.texts((*at, "on_events"))
        allowed = [
            reading.one_of((*at, "on_events", index), tuple(_EVENTS))
            for index in range(len(reading.entries((*at, "on_events"))))
        ]
        on = {cause for event in allowed if event for cause in _EVENTS[event]}
        if events and not on:
            message = "'retry.on_events' is left out: a run has its nodes when it starts"
            hint = "remove it if the job does not need it"
            reading.complain("W206", message, hint, (*at, "on_events"))
            return {}
        policy |= {"on": [cause for cause in CAUSES if cause in on]} if on else {}
        seconds = reading.seconds((*at, "duration"))
        policy |= {"node_wait": reading.duration_text(seconds)} if seconds else {}
    return {"retry": Placed(policy, at)}
