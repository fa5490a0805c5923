"""JSON Schemas of the files that people write, for editors: completion and underlined mistakes."""

from typing import Any, Literal

from pydantic.json_schema import models_json_schema

from config.catalogue.instance_types import INSTANCE_TYPE, catalogue
from config.cluster.cluster_file import Cluster
from config.cluster.hosts_file import HostsCluster
from config.loading.formats import formats
from config.models import Model
from config.run.run_file import RUN_TYPES, Run, Task

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: Literal["cluster", "run"]) -> dict[str, Any]:
    """Return the schema of a kind of file: JSON Schema 2020-12, every key described.

    Editors read it where a file begins with `# yaml-language-server: $schema=FILE`.
    """
    schema = _cluster_schema() if kind == "cluster" else _run_schema()
    return {"$schema": _DIALECT, "title": f"gpuctl {kind} file", **schema}


def _cluster_schema() -> dict[str, Any]:
    """Return the cluster file's schema: `then` is for files with `hosts`, `else` for others."""
    hosts, rented = hosts_schema(), rented_schema()
    parts = hosts.pop("$defs") | rented.pop("$defs")
    return {"if": {"required": ["hosts"]}, "then": hosts, "else": rented, "$defs": parts}


def hosts_schema() -> dict[str, Any]:
    """Return the schema of a cluster file with `hosts`."""
    schema = HostsCluster.model_json_schema()
    del schema["title"]
    return schema


def rented_schema() -> dict[str, Any]:
    """Return the schema of the file of a cluster that gpuctl rents."""
    schema = Cluster.model_json_schema()
    del schema["title"]
    _describe(schema, Cluster)
    # Names are for completion; the pattern allows other types that may exist.
    kind_field = schema["properties"]["instance_type"]
    kind_field["anyOf"] = [
        {"type": "string", "enum": list(catalogue())},
        {"type": "string", "pattern": INSTANCE_TYPE},
    ]
    del kind_field["type"]
    return schema


def _run_schema() -> dict[str, Any]:
    """Return the run file's schema: one branch in `$defs` for each type.

    A file without `type` inherits it from the file that it extends. The schema uses if and then
    instead of oneOf, so that an editor underlines the wrong key and not the whole file.
    """
    models = tuple(RUN_TYPES.values())
    _, schema = models_json_schema([(model, "validation") for model in models])
    for model in models:
        branch = schema["$defs"][model.__name__]
        _describe(branch, model)
        branch["anyOf"] = [{"required": branch.pop("required")}, {"required": ["extends"]}]
    task = schema["$defs"][Task.__name__]["properties"]
    for form in formats():
        for key, text in form.keys.items():
            task.setdefault(key, {"description": text})
        for key, forms in form.task_forms.items():
            task[key]["anyOf"] = [*task[key]["anyOf"], *forms]
    written = {"required": ["type"]}
    return {
        "type": "object",
        "properties": {
            "type": {"enum": list(RUN_TYPES), "description": Run.model_fields["type"].description}
        },
        "allOf": [
            *(
                {"if": {"properties": {"type": {"const": name}}, **written}, "then": _ref(model)}
                for name, model in RUN_TYPES.items()
            ),
            {"if": written, "else": {"required": ["extends"], "anyOf": [*map(_ref, models)]}},
        ],
        **schema,
    }


def _ref(model: type[Model]) -> dict[str, str]:
    return {"$ref": f"#/$defs/{model.__name__}"}


def _describe(schema: dict[str, Any], model: type[Model]) -> None:
    """Add the descriptions that pydantic leaves out: those of references that have a default."""
    for name, field in model.model_fields.items():
        schema["properties"][name].setdefault("description", field.description)
