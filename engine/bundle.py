"""The agent as one file: a zip application of engine/agent, the same bytes for the same source."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib import resources

from engine.places import agent_path

# Called by its path, which spares Python a search: then its folder is not yet where imports come
# from. It is the archive where that is what runs.
_MAIN = """\
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from engine.agent.main import main
sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold


@dataclass(frozen=True)
class Bundle:
    """The agent's bytes, and what tells this version from others."""

    data: bytes
    digest: str

    @property
    def path(self) -> str:
        """The folder on a node into which it is unpacked; the archive has `.pyz` behind it."""
        return agent_path(self.digest)

    @property
    def program(self) -> str:
        """What Python runs there."""
        return f"{self.path}/__main__.py"


@cache
def agent_bundle() -> Bundle:
    """The agent of this gpuctl. Stored, not deflated: zlib's output differs between versions."""
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
