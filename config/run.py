"""The run file: a superset of dstack's task file. Only fields that do something are here."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from config.cluster import NO_NUL, Command, Model, Name
from config.duration import Duration
from config.faults import Fault, refusal

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("DSTACK_", "GPUCTL_")


def _env_mapping(value: Any) -> Any:
    """A mapping from dstack's list of `NAME=value`; anything else is left to pydantic."""
    if not isinstance(value, (list, tuple)):
        return value
    faults = tuple(_list_faults(value))
    if faults:
        raise refusal(*faults)
    return {name: text for name, _, text in (entry.partition("=") for entry in value)}


def _env_name(value: str) -> str:
    wrong = _wrong_name(value)
    if wrong:
        raise refusal(Fault("E207", *wrong))
    return value


def _wrong_name(name: str) -> tuple[str, str] | None:
    """What is wrong with a variable's name and what to do, or None."""
    if not _ENV_NAME.fullmatch(name):
        return "names no variable", "use letters, digits and _, with no digit first"
    if name.startswith(_OURS):
        return "sets what gpuctl sets itself", "choose another name"
    return None


def _list_faults(entries: list[Any] | tuple[Any, ...]) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, str):
            yield Fault(
                "E207", "the entry is not NAME=value", "write NAME=value in quotes", (index,)
            )
            continue
        name, equals, _ = entry.partition("=")
        if not equals:
            yield Fault("E207", f"'{name}' has no '='", "write NAME=value", (index,))
        elif wrong := _wrong_name(name):
            yield Fault("E207", f"'{name}' {wrong[0]}", wrong[1], (index,))
        elif name in seen:
            first = f"env[{seen[name]}]"
            yield Fault(
                "E207", f"'{name}' is set again, after {first}", "keep one of them", (index,)
            )
        else:
            seen[name] = index


_NAME_FORM = "[A-Za-z_][A-Za-z0-9_]*"
Env = Annotated[
    dict[Annotated[str, AfterValidator(_env_name)], Annotated[str, Field(pattern=NO_NUL)]],
    BeforeValidator(_env_mapping),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "propertyNames": {"pattern": f"^{_NAME_FORM}$"},
                    "additionalProperties": {"type": ["string", "number"]},
                },
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": f"^{_NAME_FORM}="},
                },
            ]
        }
    ),
]
"""Variables and their text; written as a mapping or as a list of `NAME=value`."""


class Ready(Model):
    """When a node counts as ready for those that wait for it."""

    port: int | None = Field(
        default=None, ge=1, le=65535, description="It listens on this TCP port."
    )
    command: Command | None = Field(
        default=None, description="This shell command exits 0 on the node."
    )
    timeout: Duration = Field(
        default=300,
        description="How long to wait before the run fails.",
        json_schema_extra={"default": "5m"},
    )


class Run(Model):
    """A run file."""

    type: Literal["task"] = Field(description="`task`: the commands run on every node.")
    name: Name = Field(description="The run's name.")
    nodes: int = Field(default=1, ge=1, le=512, description="How many nodes it needs.")
    startup_order: Literal["any", "master-first", "workers-first"] = Field(
        default="any",
        description="Who starts when; those that wait, wait until the others are ready.",
    )
    stop_criteria: Literal["all-done", "master-done"] = Field(
        default="all-done", description="When the run is over; a failure always ends it."
    )
    image: str | None = Field(
        default=None,
        description="Container image; accepted with a warning, the job runs on the host.",
    )
    env: Env = Field(
        default={}, description="Environment of every node: a mapping, or a list of K=V."
    )
    commands: tuple[Command, ...] = Field(
        min_length=1, description="Shell commands, in order, in one bash; the first failure ends."
    )
    ready: Ready = Field(
        default=Ready(),
        description="When a node counts as ready; by default when its commands started.",
    )
    max_duration: Duration | None = Field(
        default=None, description="The run fails after this long."
    )
    on_stop: Literal["keep", "destroy"] = Field(
        default="keep",
        description="What becomes of the cluster when the run is over, however it ended.",
    )
