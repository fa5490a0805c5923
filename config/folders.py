"""The folders for state, caches and the user's templates (XDG base directories)."""

import os
from pathlib import Path

from config.errors import InputError, StateError


def home() -> Path:
    """Return the user's home folder; StateError if nothing says which it is."""
    try:
        folder = Path.home()
    except RuntimeError:  # no HOME, and no entry for the user in /etc/passwd, as in containers
        folder = Path()
    if not folder.is_absolute():
        raise StateError("the home folder is unknown", "set HOME to a folder that you can write")
    return folder


def user_path(text: str | Path) -> Path:
    """Return the path of the user's with `~` and `~name` as home folders.

    Raises InputError if there is no such user.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        name = Path(text).parts[0]
        raise InputError(
            f"'{text}' begins with '{name}', and this machine has no such home folder",
            "correct the path",
        ) from None


def state_home() -> Path:
    """Return the folder for state: `$GPUCTL_STATE`, or `$XDG_STATE_HOME/gpuctl`.

    By default it is `~/.local/state/gpuctl`. `config.settings.export_state` sets the variable if
    the user's settings have a folder.
    """
    if chosen := os.environ.get("GPUCTL_STATE"):
        return user_path(chosen).absolute()
    return _base("XDG_STATE_HOME", ".local/state") / "gpuctl"


def logs_folder() -> Path:
    """Return the folder of the logs of commands."""
    return state_home() / "logs"


def kept_logs() -> list[Path]:
    """Return the logs of commands, oldest first."""
    return sorted(logs_folder().glob("*.log"))


def cache_home() -> Path:
    """Return the folder for what can be rebuilt: `$XDG_CACHE_HOME/gpuctl`, or `~/.cache/gpuctl`."""
    return _base("XDG_CACHE_HOME", ".cache") / "gpuctl"


def config_home() -> Path:
    """Return the folder for the user's files: `$XDG_CONFIG_HOME/gpuctl`, or `~/.config/gpuctl`."""
    return _base("XDG_CONFIG_HOME", ".config") / "gpuctl"


def _base(variable: str, default: str) -> Path:
    """Return the folder that the variable names, by default one in the home.

    A relative path is ignored: "If an implementation encounters a relative path in any of these
    variables it should consider the path invalid and ignore it"
    (https://specifications.freedesktop.org/basedir-spec/latest/, 2026-11-26).
    """
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else home() / default
