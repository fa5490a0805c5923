"""Parts of a file's JSON Schema in words: the kind of a value, its default, its inner keys."""

from collections.abc import Iterator
from typing import Any

from config.bounds import PORT
from config.duration import SIZE
from config.run.requirements import COUNTS, ONE_SIZE, SIZES

_PATTERNS = {PORT: "port", SIZE: "size", ONE_SIZE: "size", COUNTS: "range", SIZES: "range of sizes"}
_WORDS = {"array": "list", "boolean": "`true` or `false`", "string": "text"}


def kind_of(field: dict[str, Any]) -> str:
    """Return the forms that a field's value takes, such as "1 to 2048 or mapping"."""
    return " or ".join(dict.fromkeys(_kinds(field)))


def default_of(field: dict[str, Any]) -> str:
    """Return a field's default as a person writes it; "" for none, and for one of several keys."""
    value = field.get("default")
    if value is None or value in ([], {}) or "$ref" in field:
        return ""
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def definition_of(schema: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the mapping that the field's value is; None for any other value."""
    for branch in (field, *field.get("anyOf", ())):
        if "$ref" in branch:
            definition: dict[str, Any] = schema["$defs"][branch["$ref"].rpartition("/")[2]]
            return definition
    return None


def named_values_of(field: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the values of a mapping with free names; None for any other field."""
    if isinstance(field.get("additionalProperties"), dict):
        return dict(field["additionalProperties"])
    branches = (*field.get("anyOf", ()), *field.get("oneOf", ()))
    return next(filter(None, map(named_values_of, branches)), None)


def _kinds(field: dict[str, Any]) -> Iterator[str]:
    """Yield the forms of a value in words."""
    allowed = field.get("enum") or ([field["const"]] if "const" in field else [])
    if "$ref" in field or field.get("type") == "object":
        yield "mapping"
    elif "anyOf" in field or "oneOf" in field:
        for branch in (*field.get("anyOf", ()), *field.get("oneOf", ())):
            yield from _kinds(branch)
    elif 0 < len(allowed) <= 9:
        yield " or ".join(f"`{value}`" for value in allowed)
    elif field.get("pattern") in _PATTERNS:
        yield _PATTERNS[field["pattern"]]
    elif field.get("type") == "integer":
        yield f"{field['minimum']} to {field['maximum']}"
    elif field.get("type") == "number":
        yield f"{field['minimum']:g} to {field['maximum']:,.0f}"
    elif str(field.get("pattern", "")).endswith("[smhd]$"):
        yield "duration"
    elif field.get("type") in _WORDS:
        yield _WORDS[field["type"]]
