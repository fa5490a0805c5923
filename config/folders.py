"""The folders for state, caches and the user's templates (XDG base directories)."""

import os
from pathlib import Path


def state_home() -> Path:
    """Return the folder for state: `$GPUCTL_STATE`, or `$XDG_STATE_HOME/gpuctl`.

    By default it is `~/.local/state/gpuctl`. `config.settings.export_state` sets the variable if
    the user's settings have a folder.
    """
    if chosen := os.environ.get("GPUCTL_STATE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "gpuctl"


def cache_home() -> Path:
    """Return the folder for what can be rebuilt: `$XDG_CACHE_HOME/gpuctl`, or `~/.cache/gpuctl`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuctl"


def config_home() -> Path:
    """Return the folder for the user's files: `$XDG_CONFIG_HOME/gpuctl`, or `~/.config/gpuctl`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gpuctl"
