"""JSON Schemas of the files that people write, for editors: completion, and mistakes underlined."""

from typing import Any, Literal

from pydantic.json_schema import models_json_schema

from config.catalogue.instance_types import INSTANCE_TYPE, catalogue
from config.cluster.cluster_file import Cluster
from config.models import Model
from config.run.run_file import RUN_TYPES, Run

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: Literal["cluster", "run"]) -> dict[str, Any]:
    """The schema of a kind of file; JSON Schema 2020-12, every key described.

    Editors read it where a file begins with `# yaml-language-server: $schema=FILE`.
    """
    schema = _cluster_schema() if kind == "cluster" else _run_schema()
    return {"$schema": _DIALECT, "title": f"gpuctl {kind} file", **schema}


def _cluster_schema() -> dict[str, Any]:
    schema = Cluster.model_json_schema()
    del schema["title"]
    _describe(schema, Cluster)
    # The names for completion, the pattern for all else that may exist.
    kind_field = schema["properties"]["instance_type"]
    kind_field["anyOf"] = [
        {"type": "string", "enum": list(catalogue())},
        {"type": "string", "pattern": INSTANCE_TYPE},
    ]
    del kind_field["type"]
    return schema


def _run_schema() -> dict[str, Any]:
    """A branch for each type in `$defs`; a file without `type` has it from what it extends.

    if and then instead of oneOf: an editor underlines the key that is wrong, not the whole file.
    """
    models = tuple(RUN_TYPES.values())
    _, schema = models_json_schema([(model, "validation") for model in models])
    for model in models:
        branch = schema["$defs"][model.__name__]
        _describe(branch, model)
        branch["anyOf"] = [{"required": branch.pop("required")}, {"required": ["extends"]}]
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
    """Descriptions are where pydantic leaves them out: beside a reference that has a default."""
    for name, field in model.model_fields.items():
        schema["properties"][name].setdefault("description", field.description)
