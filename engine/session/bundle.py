"""The agent as one file: a zip application, reproducible from its source."""

import base64
import hashlib
import importlib.metadata
import io
import shlex
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import RunError
from engine.agent.program import STACKS, receive_agent

if TYPE_CHECKING:
    from nodes.inventory import Inventory, Node
    from nodes.kept_connections import KeptConnections

_CALL_S = 60

# Python runs this file by its path, so the folder that holds it (or the archive) is not on sys.path
# yet.
_MAIN = """\
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from engine.agent.main import main
sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold


@dataclass(frozen=True)
class Bundle:
    """The agent's bytes, and a digest that identifies this version."""

    data: bytes
    digest: str

    def path(self, inventory: "Inventory") -> str:
        """Return the folder on a node with the unpacked agent; the archive's path adds `.pyz`.

        Each version has its own, so that a run keeps its agent.
        """
        return f"{inventory.remote_root}/agent-{self.digest}"

    def command(self, inventory: "Inventory", command: str, *arguments: str) -> str:
        """Return the shell command that calls the agent on a node."""
        program = f"{self.path(inventory)}/__main__.py"
        return shlex.join(["python3", "-IS", program, command, *arguments])


@cache
def agent_bundle(with_stacks: bool = False) -> Bundle:
    """Return the agent of this gpuctl; stored, not deflated: zlib's output varies by version.

    `with_stacks` adds py-spy, deflated: 3 MB instead of 8. A client on another system than Linux
    has none that runs on nodes.
    """
    files = {"__main__.py": _MAIN.encode(), "engine/__init__.py": b"", "config/__init__.py": b""}
    for package in ("agent", "contract"):
        files.update(_sources(resources.files("engine").joinpath(package), f"engine/{package}"))
    for name in ("bounds.py", "identifiers.py", "number_ranges.py", "xid.py"):
        files[f"config/{name}"] = resources.files("config").joinpath(name).read_bytes()
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name])
        if with_stacks and sys.platform == "linux":
            program = zipfile.ZipInfo(STACKS, _EPOCH)
            archive.writestr(program, _stacks_program(), zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest()[:16])


def _stacks_program() -> bytes:
    """Return py-spy, which is installed with gpuctl."""
    distribution = importlib.metadata.distribution("py-spy")
    (program,) = (file for file in distribution.files or () if file.name == STACKS)
    return Path(str(program.locate())).read_bytes()


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and text of each Python file below the folder."""
    for entry in folder.iterdir():
        if entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry, f"{path}/{entry.name}")


async def ship_agent(
    connections: "KeptConnections",
    inventory: "Inventory",
    bundle: Bundle | None = None,
    node: "Node | None" = None,
) -> None:
    """Copy this gpuctl's agent to the node, by default the head, unless the node has it.

    `bundle` is the agent with more files, if any. It is unpacked there, and an archive that the
    head sends to the other nodes. Raises RunError if the node cannot store it.
    """
    bundle, node = bundle or agent_bundle(), node or inventory.nodes[0]
    path = bundle.path(inventory)
    archive = f"{path}.pyz"
    has_both = f"test -d {shlex.quote(path)} && test -e {shlex.quote(archive)}"
    if (await connections.run(node, has_both, timeout=_CALL_S)).exit_status == 0:
        return
    folder, whole = shlex.quote(str(Path(archive).parent)), shlex.quote(archive)
    part, unpack = f"{whole}.$$", receive_agent(path, bundle.data)
    # A broken connection ends the input early: the archive gets its name when it is whole.
    command = (
        f"umask 022; mkdir -p {folder} && base64 -d > {part}"
        f' && [ "$(wc -c < {part})" -eq {len(bundle.data)} ] && mv -f {part} {whole}'
        f" || {{ rm -f {part}; exit 1; }}; {{ {unpack}; }} < {whole}"
    )
    done = await connections.run(node, command, stdin=base64.b64encode(bundle.data).decode())
    if done.exit_status != 0:
        raise RunError(
            f"{node.label} cannot take gpuctl's agent: {done.complaint}",
            "see whether its disk is full",
        )
