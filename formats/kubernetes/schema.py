"""The names and types of the fields that a kind of manifest has in Kubernetes.

A field that Kubernetes does not know is a typing mistake and therefore an error: a `Workers` that
nobody reads would be a job on one node. A field that Kubernetes knows and gpuctl does not need is
the converters' matter.
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

from config.cluster.cluster_rules import ambiguous_mistakes
from config.mistakes import MOST_MISTAKES, Mistake, Path, path_text
from config.yaml.hints import describe_value, names_hint, quote
from config.yaml.marked_yaml import Ambiguous, Document

_POD = "pod"
_POD_FILE = FilePath(__file__).parent / "schemas" / "pod.json"
_ANY_KEY = "*"
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "int-or-string": ((int, float, str), "a number or text"),
}
"""Python's types of a type, and its name in a message. Quantities (`cpu: 0.5`) may be numbers."""
_HINTS = {
    "a list": "write its entries on separate lines that begin with '- '",
    "a mapping": "write keys below it",
}


def schema_mistakes(document: Document, schema: FilePath) -> list[Mistake]:
    """Return the mistakes of a manifest's names and types, at most MOST_MISTAKES."""
    mistakes = _mistakes(document, document.data, _schema(schema), ())
    return list(islice(mistakes, MOST_MISTAKES))


@cache
def _schema(file: FilePath) -> Any:
    return json.loads(file.read_text())


def _mistakes(document: Document, value: Any, schema: Any, at: Path) -> Iterator[Mistake]:
    if value is None or schema == "any":
        return
    if schema == _POD:
        schema = _schema(_POD_FILE)
    if isinstance(schema, str):
        yield from _scalar_mistakes(document, value, schema, at)
    elif isinstance(schema, list):
        if not isinstance(value, tuple):
            yield _mistyped(document, value, "a list", at)
            return
        for index, entry in enumerate(value):
            yield from _mistakes(document, entry, schema[0], (*at, index))
    elif not isinstance(value, dict):
        yield _mistyped(document, value, "a mapping", at)
    else:
        for key, inner in value.items():
            known = schema.get(key, schema.get(_ANY_KEY))
            if known is not None:
                yield from _mistakes(document, inner, known, (*at, key))
            else:
                where = f" in '{path_text(at)}'" if at else ""
                hint = _place_hint(key, schema) or names_hint(key, schema, most=80)
                yield Mistake("E101", f"unknown key {quote(key)}{where}", hint, (*at, key), True)


_OF_RUNTIME = ("mlPolicy", "podGroupPolicy", "template")
"""The keys of a runtime's `spec` (schemas/training-runtime.json), which people write in a job."""
_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")


def _place_hint(key: str, schema: Any) -> str:
    """Return where the key belongs: in a container instead of the pod, in a TrainJob's runtime."""
    is_job, is_trainer = "runtimeRef" in schema, "resourcesPerNode" in schema
    if is_job and key in schema["trainer"]:
        return "write it in 'spec.trainer'"
    if (is_job or is_trainer) and key == "resources":
        return "write 'resourcesPerNode' in 'spec.trainer'"
    if is_job or is_trainer:
        pod = _schema(_POD_FILE)["spec"]
        place = "'spec'" if key in _OF_RUNTIME else "'spec.mlPolicy'" if key in _POLICIES else ""
        place = "the pod" if key in pod or key in pod["containers"][0] else place
        return f"it belongs in {place} of the runtime that 'runtimeRef' names" if place else ""
    containers = schema.get("containers")
    return "write it in an entry of 'containers'" if containers and key in containers[0] else ""


def _scalar_mistakes(document: Document, value: Any, schema: str, at: Path) -> Iterator[Mistake]:
    types, name = _TYPES[schema]
    if isinstance(value, Ambiguous) and schema != "int-or-string":
        yield from ambiguous_mistakes(value, at)
    elif not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield _mistyped(document, value, name, at)


def _mistyped(document: Document, value: Any, expected: str, at: Path) -> Mistake:
    written = document.text_at(at)
    hint = f"quote it: {quote(written)}"
    if expected != "text" or isinstance(value, (dict, tuple)):
        hint = _HINTS.get(expected, f"write {expected}")
    actual = describe_value(value, written)
    return Mistake("E103", f"'{path_text(at)}' is {actual}, must be {expected}", hint, at)
