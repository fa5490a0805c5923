"""`env` of a run file: variables, their text, and secrets given by name instead of value."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Tag,
    WithJsonSchema,
)

from config.cluster.cluster_file import NO_NUL
from config.mistakes import Mistake, refusal
from config.models import BY_SHAPE, MAPPING, SCALAR, Model

NAME_FORM = "[A-Za-z_][A-Za-z0-9_]*"
_ENV_NAME = re.compile(NAME_FORM)


class Secret(Model):
    """A value that is not written in the file: gpuctl reads it when the run starts."""

    secret: str = Field(
        pattern=f"^{NAME_FORM}$",
        description="Name of a variable of your environment, or of a file in"
        " `~/.config/gpuctl/secrets/`.",
    )


def _env_mapping(value: Any) -> Any:
    """Return a mapping for dstack's list; pydantic reports any other value.

    `NAME=value` is a text, a bare `NAME` the secret of that name.
    """
    if not isinstance(value, (list, tuple)):
        return value
    mistakes = tuple(_list_mistakes(value))
    if mistakes:
        raise refusal(*mistakes)
    parts = (entry.partition("=") for entry in value)
    return {name: text if equals else {"secret": name} for name, equals, text in parts}


def _env_name(value: str) -> str:
    wrong = _wrong_name(value)
    if wrong:
        raise refusal(Mistake("E207", *wrong))
    return value


def _wrong_name(name: str) -> tuple[str, str] | None:
    """Return message and hint for a name that no variable can have, or None."""
    if not _ENV_NAME.fullmatch(name):
        return "names no variable", "use letters, digits and _, with no digit first"
    return None


def _list_mistakes(entries: list[Any] | tuple[Any, ...]) -> Iterator[Mistake]:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, str):
            yield Mistake(
                "E207", "the entry is not NAME=value", "write NAME=value in quotes", (index,)
            )
            continue
        name = entry.partition("=")[0]
        if wrong := _wrong_name(name):
            yield Mistake("E207", f"'{name}' {wrong[0]}", wrong[1], (index,))
        elif name in seen:
            first = f"env[{seen[name]}]"
            yield Mistake(
                "E207", f"'{name}' is set again, after {first}", "keep one of them", (index,)
            )
        else:
            seen[name] = index


EnvName = Annotated[str, AfterValidator(_env_name)]
EnvText = Annotated[str, Field(pattern=NO_NUL)]
SweptText = Annotated[EnvText, WithJsonSchema({"type": ["string", "number"]})]
EnvValue = Annotated[Annotated[EnvText, Tag(SCALAR)] | Annotated[Secret, Tag(MAPPING)], BY_SHAPE]
Env = Annotated[
    dict[EnvName, EnvValue],
    BeforeValidator(_env_mapping),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "propertyNames": {"pattern": f"^{NAME_FORM}$"},
                    "additionalProperties": {
                        "anyOf": [
                            {"type": ["string", "number"]},
                            {
                                "type": "object",
                                "properties": {"secret": {"type": "string"}},
                                "required": ["secret"],
                                "additionalProperties": False,
                            },
                        ]
                    },
                },
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": f"^{NAME_FORM}(=|$)"},
                },
            ]
        }
    ),
]
"""Variables and their text; written as a mapping or as a list of `NAME=value` and `NAME`."""
