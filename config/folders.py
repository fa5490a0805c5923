"""Where gpuctl keeps state and caches (XDG base directories)."""

import os
from pathlib import Path


def state_home() -> Path:
    """The folder for state: `$XDG_STATE_HOME/gpuctl`, by default `~/.local/state/gpuctl`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "gpuctl"


def cache_home() -> Path:
    """The folder for what can be made again: `$XDG_CACHE_HOME/gpuctl`, or `~/.cache/gpuctl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuctl"
