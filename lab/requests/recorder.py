"""A record of requests: a JSON file for each, with the parameters that AWS would receive."""

import base64
import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from lab.requests.wire import Request


class Recorder:
    """Writes requests into a folder as long as it exists, numbered in order of arrival."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)

    def write(self, request: Request, region: str) -> None:
        """Write the request, without its signature; do nothing while there is no folder."""
        if not self._folder.is_dir():
            return
        shape = request.operation.input_shape
        content = {
            "service": request.service,
            "operation": request.name,
            "region": region,
            "parameters": readable(shape, request.parameters) if shape else {},
        }
        name = f"{next(self._numbers):04}-{request.service}-{request.name}.json"
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (self._folder / name).write_text(f"{text}\n")


def readable(shape: Any, value: Any) -> Any:
    """Return a parameter's value as JSON that a person can read.

    User data are decoded, and become a list of lines; gpuctl puts no secret into them. Any other
    value that the service model calls sensitive is left out.
    """
    if shape.name.endswith("UserData") and isinstance(value, str):
        return _lines(value)
    if shape.metadata.get("sensitive"):
        return "sensitive"
    if isinstance(value, Mapping):
        members = shape.members if shape.type_name == "structure" else dict.fromkeys(value, shape)
        return {
            name: readable(members[name], item) if name in members else str(item)
            for name, item in value.items()
        }
    if isinstance(value, list) and shape.type_name == "list":
        return [readable(shape.member, part) for part in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _lines(encoded: str) -> list[str]:
    data = base64.b64decode(encoded)
    with suppress(OSError, EOFError):  # most are not compressed
        data = gzip.decompress(data)
    return data.decode(errors="replace").splitlines()
