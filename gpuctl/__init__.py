"""Rent a GPU cluster with EFA, run a distributed job on it, give it back: docs/look-up/python.md.

The command imports this package too, so the API is imported when a name of it is first used.
"""

from gpuctl.entry import find_hidden_room
from gpuctl.entry import main as main

TYPE_CHECKING = False  # importing typing takes longer than the rest of this file
if TYPE_CHECKING:
    from gpuctl.api import *  # noqa: F403  these are the names, with their types
else:

    def __getattr__(name: str) -> object:
        """Import the API, and return this name of it."""
        from importlib import import_module

        if name.startswith("__"):  # Python and its tools ask every module for such names
            raise AttributeError(f"module 'gpuctl' has no attribute '{name}'")
        if complaint := find_hidden_room():
            raise ImportError(f"gpuctl: {complaint}")
        api = import_module("gpuctl.api")
        if name not in api.__all__:
            raise AttributeError(f"module 'gpuctl' has no attribute '{name}'")
        globals()[name] = getattr(api, name)
        return globals()[name]

    def __dir__() -> list[str]:
        """Return the names of the API."""
        from importlib import import_module

        return [*import_module("gpuctl.api").__all__, "main"]
