"""The generated halves of docs: cluster-file.md, run-file.md, diagnostics.md, errors.md, formats.

`python -m config.file_reference` writes them from the models and the tables of codes.
"""

from collections.abc import Iterator
from typing import Any

from config.bounds import PORT
from config.catalogue.aws_codes import errors_reference
from config.generated_page import GeneratedPage
from config.loading.codes import CODES
from config.loading.formats import formats
from config.run.requirements import COUNTS, ONE_SIZE, SIZES
from config.run.run_file import RUN_TYPES, Run
from config.run.size import SIZE
from config.schema import json_schema

_PATTERNS = {PORT: "port", SIZE: "size", ONE_SIZE: "size", COUNTS: "range", SIZES: "range of sizes"}
_WORDS = {"array": "list", "boolean": "`true` or `false`", "string": "text"}


def cluster_reference() -> str:
    """Return a table for the file's top keys and one for each nested mapping, in file order."""
    schema = json_schema("cluster")
    return "\n".join([_table(schema), *_nested(schema, schema, "##")])


def run_reference() -> str:
    """Return the keys that every type has, then those of each type, with their nested mappings."""
    schema = json_schema("run")
    common = {"properties": {}, "required": ["type", "name"]}
    parts = []
    for name, model in RUN_TYPES.items():
        branch = schema["$defs"][model.__name__]
        shared = {key: branch["properties"][key] for key in Run.model_fields}
        common["properties"] = {**shared, "type": schema["properties"]["type"]}
        own = {
            "properties": {
                key: field
                for key, field in branch["properties"].items()
                if key in model.model_fields and key not in shared
            },
            "required": branch["anyOf"][0]["required"],
        }
        parts += [f"## `type: {name}`\n\n{branch['description']}\n", _table(own)]
        parts += _nested(schema, own, "###")
    head = ["## Keys of every type\n", _table(common), *_nested(schema, common, "###")]
    return "\n".join([*head, *parts])


def codes_reference() -> str:
    """Return a table of all diagnostic codes, and one of the rules behind some of them."""
    rows = [f"| `{code}` | {c.meaning} | `{c.example}` |" for code, c in CODES.items()]
    rules = [f"| `{code}` | {c.reason} | {c.remedy} |" for code, c in CODES.items() if c.reason]
    return "\n".join(
        [
            "| code | meaning | for example |",
            "| --- | --- | --- |",
            *rows,
            "",
            "## Rules of run files",
            "",
            "| code | reason | what to do |",
            "| --- | --- | --- |",
            *rules,
            "",
        ]
    )


def pages() -> list[GeneratedPage]:
    """Return the pages."""
    references = {
        "look-up/cluster-file.md": cluster_reference(),
        "look-up/run-file.md": run_reference(),
        "look-up/diagnostics.md": codes_reference(),
        "look-up/errors.md": errors_reference(),
        **{name: text for form in formats() for name, text in form.pages().items()},
    }
    return [GeneratedPage(name, "config.file_reference", text) for name, text in references.items()]


def main() -> None:
    """Update the pages under docs/."""
    for page in pages():
        page.write()


def _nested(
    schema: dict[str, Any], mapping: dict[str, Any], level: str, at: tuple[str, ...] = ()
) -> Iterator[str]:
    for key, field in mapping["properties"].items():
        path = (*at, key)
        inner = _definition(schema, field)
        named = _named_values(field)
        if inner is None and named is not None:
            path = (*path, "NAME")
            inner = _definition(schema, named)
        elif inner is None and "items" in field:
            path = (*at, f"{key}[]")
            inner = _definition(schema, field["items"])
        if inner:
            title = f"{level}{'#' * len(at)} `{'.'.join(path)}`"
            yield f"{title}\n\n{field.get('description', inner['description'])}\n"
            yield _table(inner)
            yield from _nested(schema, inner, level, path)


def _table(mapping: dict[str, Any]) -> str:
    required = mapping.get("required", ())
    rows = ["| key | value | default | what it does |", "| --- | --- | --- | --- |"]
    for key, field in mapping["properties"].items():
        text = field.get("description") or f"See [`{key}`](#{key})."
        default = "required" if key in required else _default(field.get("default"))
        if "$ref" in field and key not in required:
            default = ""
        rows.append(f"| `{key}` | {_kind(field)} | {default} | {text} |")
    return "\n".join([*rows, ""])


def _default(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _kind(field: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_kinds(field))).replace("|", "\\|")


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


def _named_values(field: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the values of a mapping with free names; None for any other field."""
    if isinstance(field.get("additionalProperties"), dict):
        return dict(field["additionalProperties"])
    branches = (*field.get("anyOf", ()), *field.get("oneOf", ()))
    return next(filter(None, map(_named_values, branches)), None)


def _definition(schema: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    for branch in (field, *field.get("anyOf", ())):
        if "$ref" in branch:
            found: dict[str, Any] = schema["$defs"][branch["$ref"].rpartition("/")[2]]
            return found
    return None


if __name__ == "__main__":
    main()
