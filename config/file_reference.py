"""The generated halves of docs: cluster-file.md, run-file.md, diagnostics.md, errors.md, formats.

`python -m config.file_reference` writes them from the models and the tables of codes.
"""

from collections.abc import Iterator
from typing import Any

from config.catalogue.aws_codes import errors_reference
from config.generated_page import GeneratedPage
from config.loading.codes import CODES
from config.loading.formats import formats
from config.run.run_file import RUN_TYPES, Run
from config.schema import hosts_schema, json_schema, rented_schema
from config.schema_fields import default_of, definition_of, kind_of, named_values_of


def cluster_reference() -> str:
    """Return a table for the file's top keys and one for each nested mapping, in file order.

    The keys of files with `hosts` come last.
    """
    rented, hosts = rented_schema(), hosts_schema()
    parts = [_table(rented), *_nested(rented, rented, "##"), f"{_HOSTS}\n", _table(hosts)]
    return "\n".join([*parts, *_nested(hosts, hosts, "###")])


_HOSTS = """\
## Files with `hosts`

A file with `hosts` describes [machines that you have](../do/own-machines.md). gpuctl rents nothing
for it, so it has these keys alone."""


def run_reference() -> str:
    """Return the keys that every type has, then those of each type, with their nested mappings.

    A key that an earlier type has with the same words is named, and not described again.
    """
    schema = json_schema("run")
    common = {"properties": {}, "required": ["type", "name"]}
    parts = []
    shown: dict[str, str] = {}
    for name, model in RUN_TYPES.items():
        branch = schema["$defs"][model.__name__]
        shared = {key: branch["properties"][key] for key in Run.model_fields}
        common["properties"] = {**shared, "type": schema["properties"]["type"]}
        required = branch["anyOf"][0]["required"]
        properties: dict[str, Any] = {}
        earlier: dict[str, list[str]] = {}
        for key, field in branch["properties"].items():
            if key not in model.model_fields or key in shared:
                continue
            row = _row(key, field, key in required)
            if row in shown:
                earlier.setdefault(shown[row], []).append(f"`{key}`")
            else:
                shown[row] = name
                properties[key] = field
        parts.append(f"## `type: {name}`\n\n{branch['description']}\n")
        parts += [f"As in `{kind}`: {', '.join(keys)}.\n" for kind, keys in earlier.items()]
        if properties:
            own = {"properties": properties, "required": required}
            parts += [_table(own), *_nested(schema, own, "###")]
    head = ["## Keys of every type\n", _table(common), *_nested(schema, common, "###")]
    return "\n".join([*head, *parts])


def codes_reference() -> str:
    """Return a table of all diagnostic codes, and one of the reasons of some rules."""
    rows = [f"| `{code}` | {c.meaning} | `{c.example}` | {c.remedy} |" for code, c in CODES.items()]
    rules = [f"| `{code}` | {c.reason} |" for code, c in CODES.items() if c.reason]
    return "\n".join(
        [
            "| code | meaning | for example | what to do |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "## Reasons",
            "",
            "| code | reason |",
            "| --- | --- |",
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
        inner = definition_of(schema, field)
        named = named_values_of(field)
        if inner is None and named is not None:
            path = (*path, "NAME")
            inner = definition_of(schema, named)
        elif inner is None and "items" in field:
            path = (*at, f"{key}[]")
            inner = definition_of(schema, field["items"])
        if inner and inner["properties"].keys() != {"secret"}:  # `{secret: NAME}` says it itself
            yield f"{level}{'#' * len(at)} `{'.'.join(path)}`\n"
            yield _table(inner)
            yield from _nested(schema, inner, level, path)


def _table(mapping: dict[str, Any]) -> str:
    required = mapping.get("required", ())
    rows = ["| key | value | default | what it does |", "| --- | --- | --- | --- |"]
    rows += [_row(key, field, key in required) for key, field in mapping["properties"].items()]
    return "\n".join([*rows, ""])


def _row(key: str, field: dict[str, Any], is_required: bool) -> str:
    text = field.get("description") or f"See [`{key}`](#{key})."
    default = "required" if is_required else default_of(field)
    kind = kind_of(field).replace("|", "\\|")
    return f"| `{key}` | {kind} | {default} | {text} |"


if __name__ == "__main__":
    main()
