"""The generated halves of docs/cluster-file.md, run-file.md, diagnostics.md and errors.md.

`python -m config.reference` writes them from the models and the tables of codes; a test fails
where a page differs. What stands above the marker in a page is written by hand and kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config.aws_codes import errors_reference
from config.codes import CODES
from config.schema import json_schema

MARKER = "<!-- Below: written by `python -m config.reference`. -->\n"
DOCS = Path(__file__).parent.parent / "docs"


def fields_reference(schema: dict[str, Any]) -> str:
    """A table for the file's own keys, then one for each nested mapping, in the file's order."""
    return "\n".join([_table(schema), *_nested(schema, schema, ())])


def codes_reference() -> str:
    """A table of all diagnostic codes."""
    rows = [f"| `{code}` | {c.meaning} | `{c.example}` |" for code, c in CODES.items()]
    return "\n".join(["| code | meaning | for example |", "| --- | --- | --- |", *rows, ""])


def pages() -> dict[Path, str]:
    """Each page's generated half."""
    return {
        DOCS / "cluster-file.md": fields_reference(json_schema("cluster")),
        DOCS / "run-file.md": fields_reference(json_schema("run")),
        DOCS / "diagnostics.md": codes_reference(),
        DOCS / "errors.md": errors_reference(),
    }


def with_reference(page: str, reference: str) -> str:
    """The page with everything below its marker replaced."""
    return page.partition(MARKER)[0] + MARKER + "\n" + reference


def main() -> None:
    """The pages under docs/ are up to date."""
    for path, reference in pages().items():
        path.write_text(with_reference(path.read_text(), reference))


def _nested(schema: dict[str, Any], mapping: dict[str, Any], at: tuple[str, ...]) -> Iterator[str]:
    for key, field in mapping["properties"].items():
        inner = _definition(schema, field)
        if inner:
            path = (*at, key)
            title = f"{'#' * (1 + len(path))} `{'.'.join(path)}`"
            yield f"{title}\n\n{field.get('description', inner['description'])}\n"
            yield _table(inner)
            yield from _nested(schema, inner, path)


def _table(mapping: dict[str, Any]) -> str:
    required = mapping.get("required", ())
    rows = ["| key | value | default | what it does |", "| --- | --- | --- | --- |"]
    for key, field in mapping["properties"].items():
        text = field.get("description") or f"See [`{key}`](#{key})."
        if "$ref" in field:
            default = ""
        elif key in required:
            default = "required"
        else:
            default = _default(field.get("default"))
        rows.append(f"| `{key}` | {_kind(field)} | {default} | {text} |")
    return "\n".join([*rows, ""])


def _default(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    return f"`{value}`"


def _kind(field: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_kinds(field))).replace("|", "\\|")


def _kinds(field: dict[str, Any]) -> Iterator[str]:
    """The forms of a value in words."""
    allowed = field.get("enum") or ([field["const"]] if "const" in field else [])
    if "$ref" in field or field.get("type") == "object":
        yield "mapping"
    elif "anyOf" in field:
        for branch in field["anyOf"]:
            yield from _kinds(branch)
    elif 0 < len(allowed) <= 5:
        yield " or ".join(f"`{value}`" for value in allowed)
    elif field.get("type") == "integer":
        yield f"{field['minimum']} to {field['maximum']}"
    elif field.get("type") == "number":
        yield f"{field['minimum']:g} to {field['maximum']:,.0f}"
    elif field.get("type") == "array":
        yield "list"
    elif str(field.get("pattern", "")).endswith("[smhd]$"):
        yield "duration"
    elif field.get("type") == "string":
        yield "text"


def _definition(schema: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    for branch in (field, *field.get("anyOf", ())):
        if "$ref" in branch:
            found: dict[str, Any] = schema["$defs"][branch["$ref"].rpartition("/")[2]]
            return found
    return None


if __name__ == "__main__":
    main()
