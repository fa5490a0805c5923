"""Modules that are executed when they are first used: help and completion use none of them.

Operations import boto3, asyncssh and Pulumi, which takes up to a second. Rendering imports
rich or yaml. Files are read with pydantic. A command names a whole module
(`from operations import release`), and the first attribute that it uses executes it
(https://docs.python.org/3/library/importlib.html#importlib.util.LazyLoader, 2026-11-27).
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_LAZY = ("operations.", "cli.render.", "config.", "lab.")


class _LazyFinder:
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module with a loader that waits for its first use; None for other modules."""
        spec = PathFinder.find_spec(name, path, target) if name.startswith(_LAZY) else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_lazily() -> None:
    """Let Python execute these modules when they are first used, from now on."""
    if not any(isinstance(finder, _LazyFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LazyFinder())
