"""Modules that are executed when they are first used: help and completion use none of them.

Operations import boto3, asyncssh and Pulumi, which takes up to a second. Rendering imports
rich or yaml. Files are read with pydantic. A command names a whole module
(`from operations import release`), and the first attribute that it uses executes it
(https://docs.python.org/3/library/importlib.html#importlib.util.LazyLoader, 2026-11-27).

What another thread imports is executed at once. Before Python 3.11.9 and 3.12.3 a second thread
that used a lazy module while the first one executed it would find half of it
(https://github.com/python/cpython/issues/114763, 2026-11-27).
"""

import sys
import threading
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
        if not name.startswith(_LAZY) or threading.current_thread() is not threading.main_thread():
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_lazily() -> None:
    """Let Python execute these modules when they are first used, from now on."""
    if not any(isinstance(finder, _LazyFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LazyFinder())
