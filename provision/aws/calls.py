"""A record of this process's calls to AWS, with which the lab is compared.

docs/start/first-day.md describes it.

If GPUCTL_CALLS names a file, every call that boto3 makes for gpuctl appends one line of JSON to
it: the operation, its time, the names of the request's and the answer's fields, the states of
resources, and AWS's refusal. Other values of requests and answers are not written: they may be
secrets. The calls of Pulumi's provider, a separate program, are not recorded.
"""

import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3.session

from config.models import Value

_LOGGER = logging.getLogger("gpuctl")

VARIABLE = "GPUCTL_CALLS"
"""The environment variable that names the file."""

_STATE = re.compile(r"(State|StateName|Status|Lifecycle)$")
"""The ends of the names of EC2's, EFS's and FSx's shapes that list the states of a resource
(botocore's service models, 2026-11-23). Such a value is one of a public list, never a secret."""

_LONG_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_MESSAGE_LIMIT = 300


class SeenState(Value):
    """A resource's state in an answer; `kind` is AWS's: `Instance State.Name`."""

    kind: str
    id: str
    state: str


class Call(Value):
    """A call and its answer. `at` is the time of the answer in seconds since 1970.

    `fields` are the names of the answer's fields, each once (`Vpcs[].CidrBlock`), `sent` those of
    the request. `code` and `message` are empty unless AWS refused, or could not be reached.
    """

    service: str
    operation: str
    at: float
    seconds: float
    retries: int = 0
    fields: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    states: tuple[SeenState, ...] = ()
    code: str = ""
    message: str = ""


def record_calls(session: boto3.session.Session) -> None:
    """Let clients that the session will create record their calls, if GPUCTL_CALLS is set."""
    path = os.environ.get(VARIABLE)
    if path:
        recorder = _Recorder(path)
        session.events.register("before-parameter-build", recorder.build)
        session.events.register("after-call", recorder.end)
        session.events.register("after-call-error", recorder.fail)


def log_calls(session: boto3.session.Session) -> None:
    """Let clients that the session will create log their calls at level DEBUG."""
    session.events.register("before-call", _begin)
    session.events.register("after-call", _log_answer)
    session.events.register("after-call-error", _log_failure)


def _begin(**event: Any) -> None:
    event["context"]["gpuctl_began"] = time.monotonic()


def _log_answer(**event: Any) -> None:
    model, answer = event["model"], event["parsed"]
    _LOGGER.debug(
        "AWS %s %s: %s after %.2f s, request %s",
        model.service_model.service_name,
        model.name,
        answer.get("Error", {}).get("Code", "answered"),
        _seconds(event["context"]),
        answer.get("ResponseMetadata", {}).get("RequestId", "unknown"),
    )


def _log_failure(**event: Any) -> None:
    _, service, operation = event["event_name"].split(".", 2)
    kind, seconds = type(event["exception"]).__name__, _seconds(event["context"])
    _LOGGER.debug("AWS %s %s: %s after %.2f s", service, operation, kind, seconds)


def redact(message: str) -> str:
    """Return the first line of AWS's message, without anything that may be a token or key.

    The message of SignatureDoesNotMatch contains the request with the session's token, and that of
    UnauthorizedOperation an encoded description of the request.
    """
    first = (message.splitlines() or [""])[0].partition("Encoded authorization failure")[0]
    return _LONG_TOKEN.sub("…", first).strip()[:_MESSAGE_LIMIT]


@dataclass(frozen=True)
class _Recorder:
    path: str

    def build(self, **event: Any) -> None:
        shape = event["model"].input_shape
        names = _walk(shape, event["params"], "", None) if shape else ()
        event["context"]["gpuctl_sent"] = tuple(
            dict.fromkeys(name for name in names if isinstance(name, str))
        )

    def end(self, **event: Any) -> None:
        model, answer = event["model"], event["parsed"]
        error = answer.get("Error", {})
        names, states = dict[str, None](), list[SeenState]()
        if not error and model.output_shape is not None:
            for item in _walk(model.output_shape, answer, "", None):
                if isinstance(item, SeenState):
                    states.append(item)
                else:
                    names[item] = None
        self._write(
            Call(
                service=str(model.service_model.service_name),
                operation=str(model.name),
                at=time.time(),
                seconds=_seconds(event["context"]),
                retries=answer.get("ResponseMetadata", {}).get("RetryAttempts", 0),
                fields=tuple(names),
                sent=event["context"].get("gpuctl_sent", ()),
                states=tuple(states),
                code=str(error.get("Code", "")),
                message=redact(str(error.get("Message", ""))),
            )
        )

    def fail(self, **event: Any) -> None:
        _, service, operation = event["event_name"].split(".", 2)
        self._write(
            Call(
                service=service,
                operation=operation,
                at=time.time(),
                seconds=_seconds(event["context"]),
                sent=event["context"].get("gpuctl_sent", ()),
                code=type(event["exception"]).__name__,
                message=redact(str(event["exception"])),
            )
        )

    def _write(self, call: Call) -> None:
        # One write to a file opened for appending: lines of several processes do not mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{call.model_dump_json()}\n".encode())
        finally:
            os.close(descriptor)


def _seconds(context: dict[str, Any]) -> float:
    """Return the call's duration with its retries; 0 if it never began."""
    now = time.monotonic()
    return round(now - float(context.get("gpuctl_began", now)), 3)


@dataclass(frozen=True)
class _Resource:
    """The resource that the fields belong to, and the length of the path to it."""

    kind: str
    id: str
    depth: int


def _walk(shape: Any, value: Any, path: str, within: _Resource | None) -> Iterator[str | SeenState]:
    """Yield the names of all fields of an answer, and the states of the resources in it."""
    if shape.type_name == "list":
        for item in value or ():
            yield from _walk(shape.member, item, f"{path}[]", _resource(shape.member, item, path))
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if (part := (value or {}).get(name)) is not None:
                inner = f"{path}.{name}".lstrip(".")
                yield inner
                yield from _walk(member, part, inner, within)
    if within is not None and getattr(shape, "enum", None) and _STATE.search(shape.name):
        kind = f"{within.kind} {path[within.depth :]}"
        yield SeenState(kind=kind, id=within.id, state=str(value))


def _resource(shape: Any, item: Any, path: str) -> _Resource | None:
    """Return the resource that the item of a list describes, if it has an id of that kind."""
    resource_id = item.get(f"{shape.name}Id") if isinstance(item, dict) else None
    return _Resource(shape.name, str(resource_id), len(f"{path}[].")) if resource_id else None
