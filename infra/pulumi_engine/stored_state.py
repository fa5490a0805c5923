"""A stack's state in the backend's folder, made and read without a start of the Pulumi engine.

Each start of a released engine takes 0.2 s of CPU time, most of it before it reads its arguments
(`GODEBUG=inittrace=1 pulumi version`, 3.258.0, 2026-11-23). An engine that gpuctl built takes
0.07 s.
"""

import json
from pathlib import Path
from typing import Any

from config.files import write_new

VERSION = 3
"""The version of the state's format, in the file and in an export."""

_COMPRESSED = (".gz", ".zst")
"""What Pulumi appends to the name of a compressed state."""


def write_empty_state(file: Path, stack: str) -> None:
    """Make a stack that was never updated, unless it exists; `stack` is its full name.

    `pulumi stack init` does no more, apart from the settings, which the first operation writes too
    (3.258.0, tried on 2026-11-23).
    """
    if not _is_compressed(file):
        write_new(file, json.dumps({"version": VERSION, "checkpoint": {"stack": stack}}))


def read_deployment(file: Path) -> dict[str, Any] | None:
    """Return what `pulumi stack export` prints as `deployment`; None if Pulumi must be asked.

    That is so if the state is missing, damaged, compressed, or in another format than 3.258.0
    writes: `VersionedCheckpoint` with version 3
    (https://github.com/pulumi/pulumi/blob/master/sdk/go/common/apitype/core.go, 2026-11-23), and no
    `features`. Pulumi reads more formats, and its message says what is wrong. It replaces the file
    as a whole. The state of a stack that was never updated is empty.
    """
    if _is_compressed(file):
        return None
    try:
        stored = json.loads(file.read_bytes())
        if stored["version"] != VERSION or stored.get("features"):
            return None
        latest = stored["checkpoint"].get("latest", {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return latest if isinstance(latest, dict) else None


def _is_compressed(file: Path) -> bool:
    return any(file.with_name(file.name + suffix).exists() for suffix in _COMPRESSED)


def stack_outputs(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of the last complete update; nothing after `destroy`."""
    for resource in deployment.get("resources") or ():
        if resource["type"] == "pulumi:pulumi:Stack":
            return dict(resource.get("outputs") or {})
    return {}
