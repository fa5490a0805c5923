"""JSON Schemas of the files that people write, for editors: completion, and mistakes underlined."""

from typing import Any, Literal

from config.catalogue import catalogue, instance_type_pattern
from config.cluster import Cluster
from config.run import Run

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: Literal["cluster", "run"]) -> dict[str, Any]:
    """The schema of a kind of file; JSON Schema 2020-12, every key described.

    Editors read it where a file begins with `# yaml-language-server: $schema=FILE`.
    """
    model = Cluster if kind == "cluster" else Run
    schema = {"$schema": _DIALECT, **model.model_json_schema()}
    schema["title"] = f"gpuctl {kind} file"
    for name, field in model.model_fields.items():
        # pydantic leaves the description out beside a reference that has a default
        schema["properties"][name].setdefault("description", field.description)
    if kind == "cluster":
        # The names for completion, the pattern for all else that may exist.
        kind_field = schema["properties"]["instance_type"]
        kind_field["anyOf"] = [
            {"type": "string", "enum": list(catalogue())},
            {"type": "string", "pattern": instance_type_pattern()},
        ]
        del kind_field["type"]
    return schema
