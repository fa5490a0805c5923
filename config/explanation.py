"""Explain a diagnostic, an error code of AWS or a field of a file: `gpuctl explain`.

The texts are those of the pages in docs/look-up: tables of codes, and the models of files.
"""

import difflib
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from config.catalogue.aws_codes import AWS_CODES, aws_code
from config.errors import InputError
from config.loading.codes import CODES
from config.run.run_file import RUN_TYPES, Run
from config.schema import json_schema
from config.schema_fields import default_of, definition_of, kind_of, named_values_of

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_PAGES = "docs/look-up"


@dataclass(frozen=True)
class Field:
    """A key of a file: the forms of its value, its default, and what it does.

    `types` are the run types that have the key; none for a key of every type, or of a cluster.
    """

    name: str
    kind: str
    default: str
    description: str
    is_required: bool = False
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The explanation of a name: a diagnostic, an error code of AWS, or a part of a file.

    A text is empty where there is none. `field` is None for a code, and for a whole file; `keys`
    are those of a mapping.
    """

    name: str
    subject: Literal["diagnostic", "AWS error", "cluster file", "run file"]
    meaning: str
    page: str
    example: str = ""
    reason: str = ""
    reaction: str = ""
    remedy: str = ""
    field: Field | None = None
    keys: tuple[Field, ...] = ()


def explain(name: str) -> Explanation:
    """Return what a code or a field such as `run.env` means; InputError for an unknown name."""
    kind = name.partition(".")[0]
    if kind in ("cluster", "run"):
        return _of_field(name)
    for code in (name, name.upper()):
        if code in CODES:
            return _of_diagnostic(code)
    if aws_code(name) is not None:
        return _of_aws_code(name)
    raise _unknown(name, (*CODES, *AWS_CODES, *_names("cluster"), *_names("run")))


def documents() -> Path:
    """Return the folder of the documentation: that of the checkout, or that of the wheel."""
    home = Path(__file__).parents[1]
    packed = home / "gpuctl" / "docs"
    return packed if packed.is_dir() else home / "docs"


def _of_diagnostic(name: str) -> Explanation:
    code = CODES[name]
    return Explanation(
        name,
        "diagnostic",
        _plain(code.meaning),
        f"{_PAGES}/diagnostics.md",
        example=code.example,
        reason=_plain(code.reason),
        remedy=_plain(code.remedy),
    )


def _of_aws_code(name: str) -> Explanation:
    code = aws_code(name)
    assert code is not None
    return Explanation(
        name,
        "AWS error",
        code.meaning,
        f"{_PAGES}/errors.md",
        reaction=f"gpuctl {_plain(code.does)}",
        remedy=_plain(code.remedy),
    )


def _of_field(name: str) -> Explanation:
    kind: Literal["cluster", "run"] = "run" if name.startswith("run") else "cluster"
    top, *path = name.split(".")
    fields, schema = _top_fields(kind), json_schema(kind)
    where: list[str] = [top]
    named: Field | None = None
    for part in path:
        near = [key for key in fields if key in {part, "NAME"}]
        if not near:
            raise _unknown(name, (".".join((*where, key)) for key in fields))
        named, value = fields[near[0]]
        where.append(part)
        fields = _inner_fields(schema, value)
    text = f"The {kind} file." if named is None else named.description
    keys = tuple(field for field, _ in fields.values())
    page = f"{_PAGES}/{kind}-file.md"
    return Explanation(name, _SUBJECTS[kind], text, page, field=named, keys=keys)


_SUBJECTS: dict[str, Literal["cluster file", "run file"]] = {
    "cluster": "cluster file",
    "run": "run file",
}

_Fields = dict[str, tuple[Field, dict[str, Any]]]
"""Keys with the schemas of their values."""


def _top_fields(kind: Literal["cluster", "run"]) -> _Fields:
    """Return the keys of a file; those of a run file with the types that have them."""
    schema = json_schema(kind)
    if kind == "cluster":
        hosts, rented = schema["then"], schema["else"]
        only_hosts = {
            "properties": {
                key: value
                for key, value in hosts["properties"].items()
                if key not in rented["properties"]
            }
        }
        return {
            **_fields(rented, rented["required"]),
            **_fields(only_hosts, hosts["required"]),
        }
    fields: _Fields = {}
    types: dict[str, list[str]] = {}
    for name, model in RUN_TYPES.items():
        branch = schema["$defs"][model.__name__]
        own = {key: branch["properties"][key] for key in model.model_fields}
        for key, value in _fields({"properties": own}, branch["anyOf"][0]["required"]).items():
            fields.setdefault(key, value)
            if key not in Run.model_fields:
                types.setdefault(key, []).append(name)
    fields["type"] = _fields(schema, ("type",))["type"]
    return {
        key: (replace(field, types=tuple(types.get(key, ()))), value)
        for key, (field, value) in fields.items()
    }


def _inner_fields(schema: dict[str, Any], value: dict[str, Any]) -> _Fields:
    """Return the keys of the mapping that a value is; NAME where people choose the keys."""
    inner = definition_of(schema, value)
    if inner is not None:
        return _fields(inner, inner.get("required", ()))
    named = named_values_of(value)
    if named is not None and definition_of(schema, named) is not None:
        return {"NAME": (Field("NAME", kind_of(named), "", "A name of yours."), named)}
    if "items" in value:
        return _inner_fields(schema, value["items"])
    return {}


def _fields(mapping: dict[str, Any], required: Collection[str]) -> _Fields:
    return {
        key: (
            Field(
                key,
                kind_of(value),
                default_of(value),
                _plain(value.get("description") or ""),
                key in required,
            ),
            value,
        )
        for key, value in mapping["properties"].items()
    }


def _names(kind: Literal["cluster", "run"]) -> Iterator[str]:
    yield kind
    yield from (f"{kind}.{key}" for key in _top_fields(kind))


def _unknown(name: str, names: Iterable[str]) -> InputError:
    known = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.5)
    hint = f"nearest: {', '.join(known[each] for each in near)}" if near else _EXAMPLES
    return InputError(f"nothing is known of '{name}'", hint)


_EXAMPLES = "name a code (E101, VcpuLimitExceeded) or a field (run.env, cluster.capacity.type)"


def _plain(text: str) -> str:
    """Return the text without the marks of links: their pages follow in parentheses."""
    return _LINK.sub(lambda link: _linked(link[1], link[2]), text).replace("\\|", "|")


def _linked(text: str, url: str) -> str:
    if url.startswith("#"):
        return text
    page = url if "://" in url else posixpath.normpath(f"{_PAGES}/{url.partition('#')[0]}")
    return page if page.endswith(f"/{text}") else f"{text} ({page})"
