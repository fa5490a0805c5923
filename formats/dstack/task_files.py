"""The files and the repository of a dstack task, which travel with the run (docs/do/code.md).

A relative remote path is in the folder where the job starts. dstack allows others too
(src/dstack/_internal/core/models/files.py of dstackai/dstack, 2026-11-23): such files travel below
SENT, and the task's script copies them from there before its commands.
"""

import re
import shlex
from typing import Any

from config.mistakes import Path
from formats.converted import Placed
from formats.dstack.dstack_file import DstackFile

SENT = ".dstack"
_REPOSITORY = re.compile(r"(.*?)(?::((?!//)[./~].*))?")
_URL = re.compile(r"https://|ssh://|[^/]+@")


def files(reading: DstackFile) -> tuple[dict[str, Placed], list[str]]:
    """Return the files in gpuctl's form, and lines of bash that copy some to their places."""
    mappings, copies = [], []
    for index in range(len(reading.entries(("files",)))):
        at: Path = ("files", index)
        local, remote = _paths(reading, at)
        if remote.startswith(("/", "~")):
            sent = f"{SENT}/{index}"
            copies.append(_copy(sent, remote))
            remote = sent
        mappings.append(Placed(f"{local}:{remote}" if remote else local, at))
    return ({"files": Placed(mappings, ("files",))} if mappings else {}), copies


def repository(reading: DstackFile) -> tuple[dict[str, Any], list[str]]:
    """Return the first of `repos` in gpuctl's form, and lines of bash that copy it to its place.

    A folder of the user's becomes the `workdir`, with what is not committed; an address `repo`.
    """
    at: Path = ("repos", 0)
    for index in range(1, len(reading.entries(("repos",)))):
        message, hint = f"'repos[{index}]' is left out: a run has one", "name its files in 'files'"
        reading.complain("W206", message, hint, ("repos", index))
    if not reading.entries(("repos",)):
        return {}, []
    if isinstance(reading.get(at), dict):
        reading.unknown_keys(at, ("local_path", "url", "branch", "hash", "path", "if_exists"))
        source = reading.text((*at, "url")) or reading.text((*at, "local_path"))
        place = reading.text((*at, "path"))
    else:
        match = _REPOSITORY.fullmatch(reading.text(at))
        source, place = (match[1], match[2] or "") if match else ("", "")
    copies = [_copy("", place)] if place.startswith(("/", "~")) else []
    if place not in ("", ".", "./") and not copies:
        message = f"'repos[0]' goes to {place}, below the folder where the job starts"
        reading.complain("W206", f"{message}: it is that folder", "write no path", at)
    if not _URL.match(source):
        return {"workdir": Placed(source, at)}, copies
    pinned = (("branch", "branch"), ("hash", "commit"))
    texts = {key: Placed(reading.text((*at, name)), at) for name, key in pinned}
    given = {key: text for key, text in texts.items() if text.value}
    return {"repo": Placed({"url": Placed(source, at), **given}, at)}, copies


def _paths(reading: DstackFile, at: Path) -> tuple[str, str]:
    """Return the local path and the remote one, which may be empty: then they are the same."""
    if isinstance(reading.get(at), dict):
        reading.unknown_keys(at, ("local_path", "path"))
        local, remote = (reading.text((*at, key)) for key in ("local_path", "path"))
    else:
        local, _, remote = reading.text(at).partition(":")
    return local, remote or (local if local.startswith(("/", "~")) else "")


def _copy(sent: str, place: str) -> str:
    is_home = place == "~" or place.startswith("~/")
    target = '"$HOME"' + shlex.quote(place[1:]) if is_home else shlex.quote(place)
    return (
        f'mkdir -p -- "$(dirname -- {target})" &&\n'
        f'  cp -a -T -- "$GPUCTL_WORKDIR"/{sent} {target} || exit 1'
    )
