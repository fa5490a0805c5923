"""The image of dstack's task, with its volumes and the account of its registry."""

import shlex
from dataclasses import dataclass
from typing import Any

from config.mistakes import Path, path_text
from config.run.container_fields import MOUNT, OTHERS_IMAGES, TAKE_CUDA, WHY_NO_OTHERS
from config.run.run_file import FORMS
from config.yaml.hints import describe_value
from formats.converted import Placed
from formats.dstack.dstack_file import DstackFile
from formats.dstack.references import Reference, secret_text
from formats.dstack.task_env import variable

_LINK = """\
mkdir -p -- "$gpuctl_from" "$(dirname -- "$gpuctl_to")"
rmdir -- "$gpuctl_to" 2>/dev/null
[ "$(readlink -- "$gpuctl_to")" = "$gpuctl_from" ] || ln -sT -- "$gpuctl_from" "$gpuctl_to" || {
  echo "gpuctl: $gpuctl_to exists on $GPUCTL_NODE_NAME, so it cannot be $gpuctl_from" >&2
"""


@dataclass(frozen=True)
class Volume:
    """A folder of the node and its place for the job; an optional one may be missing."""

    source: str
    target: str
    is_optional: bool


def image(reading: DstackFile) -> dict[str, Any]:
    """Return the image with what it needs; refuse one for other accelerators."""
    reference = reading.text(("image",))
    if not reference:
        return {}
    if OTHERS_IMAGES.search(reference):
        reading.refuse(("image",), f"is {reference}, which is {WHY_NO_OTHERS}", TAKE_CUDA)
    fields: dict[str, Any] = {"image": Placed(reference, ("image",))}
    if reading.flag(("privileged",)):
        fields["privileged"] = Placed(True, ("privileged",))
    volumes = [f"{volume.source}:{volume.target}" for volume in _volumes(reading)]
    fields |= {"volumes": Placed(volumes, ("volumes",))} if volumes else {}
    return fields | _registry_auth(reading)


def volume_links(reading: DstackFile) -> list[str]:
    """Return lines of bash that link the volumes' folders on the node, for a task without image."""
    if reading.text(("image",)):
        return []
    return [
        f"gpuctl_from={shlex.quote(volume.source)} gpuctl_to={shlex.quote(volume.target)}\n{_LINK}"
        + ("}" if volume.is_optional else "  exit 1\n}")
        for volume in _volumes(reading)
        if volume.source != volume.target
    ]


def _volumes(reading: DstackFile) -> list[Volume]:
    """Return the volumes that are folders of the node; refuse network volumes."""
    volumes = []
    for index in range(len(reading.entries(("volumes",)))):
        at: Path = ("volumes", index)
        value = reading.get(at)
        if isinstance(value, dict) and "instance_path" in value:
            reading.unknown_keys(at, ("instance_path", "path", "optional"))
            source, target = (reading.text((*at, key)) for key in ("instance_path", "path"))
        elif isinstance(value, dict):
            reading.unknown_keys(at, ("name", "path"))
            source, target = ", ".join(reading.texts((*at, "name"))), reading.text((*at, "path"))
        else:
            source, _, target = reading.text(at).partition(":")
        if "/" not in source:
            why = f"is the network volume {source}, which is in dstack's server"
            hint = "write `storage.shared` into the cluster file: all nodes have its folder"
            reading.refuse(at, why, hint)
        elif not target.startswith("/") or ":" in target or ".." in target.split("/"):
            message = f"'{path_text(at)}' is {describe_value(f'{source}:{target}')}"
            hint = f"write {FORMS[MOUNT]}"
            reading.complain("E203", message, hint, at)
        else:
            is_optional = reading.flag((*at, "optional"))
            volumes.append(Volume(source, target.rstrip("/") or "/", is_optional))
    return volumes


def _registry_auth(reading: DstackFile) -> dict[str, Any]:
    at: Path = ("registry_auth",)
    if reading.get(at) is None:
        return {}
    reading.unknown_keys(at, ("username", "password"))
    account: dict[str, Any] = {}
    for key in ("username", "password"):
        reading.require((*at, key))
        account[key] = Placed(_account_text(reading, (*at, key)), (*at, key))
    if isinstance(account["username"].value, dict):
        why = "is a secret, and a user's name is part of the plan"
        reading.refuse((*at, "username"), why, "write the name")
    return {"registry_auth": account}


def _account_text(reading: DstackFile, at: Path) -> str | dict[str, str]:
    """Return text, or a run file's `{secret: NAME}`, for a text of the registry's account."""
    parts = secret_text(reading, at, reading.text(at), ("secrets", "env"))
    if len(parts) == 1 and isinstance(parts[0], Reference):
        value = variable(reading, parts[0]) if parts[0].namespace == "env" else None
        return value if value is not None else {"secret": parts[0].key}
    words = [part if isinstance(part, str) else variable(reading, part) for part in parts]
    if any(word is None for word in words):
        reading.refuse(at, "has a secret and more text", "write the secret alone")
    return "".join(word or "" for word in words)
