"""The agent as one file: a zip application of engine/agent, reproducible from its source."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib import resources

from engine.places import agent_path

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

    @property
    def path(self) -> str:
        """The folder on a node that has the unpacked agent; the archive's path adds `.pyz`."""
        return agent_path(self.digest)

    @property
    def program(self) -> str:
        """The file on a node that Python runs."""
        return f"{self.path}/__main__.py"


@cache
def agent_bundle() -> Bundle:
    """Return the agent of this gpuctl; stored, not deflated: zlib's output varies by version."""
    files = {"__main__.py": _MAIN.encode(), "engine/__init__.py": b""}
    for source in resources.files("engine.agent").iterdir():
        if source.name.endswith(".py"):
            files[f"engine/agent/{source.name}"] = source.read_bytes()
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name])
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest()[:16])
