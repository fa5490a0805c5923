"""The user's settings: flags, variables, a profile, a file, and defaults, in this order.

The file is `~/.config/gpuctl/config.yaml` (`$XDG_CONFIG_HOME`), which may have profiles. Nothing
here imports pydantic or YAML without a file or a variable to read: every command comes through.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import settings_model
from config.errors import InputError, InvalidFiles
from config.files import read_regular
from config.folders import config_home, state_home, user_path

PROFILE = "GPUCTL_PROFILE"
"""The variable that chooses a profile of the file."""

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "aws_profile": ("GPUCTL_AWS_PROFILE", "AWS_PROFILE"),
    "backend": ("GPUCTL_BACKEND",),
    "check_permissions": ("GPUCTL_CHECK_PERMISSIONS",),
    "gc_regions": ("GPUCTL_GC_REGIONS",),
    "lifetime": ("GPUCTL_LIFETIME",),
    "owner": ("GPUCTL_OWNER",),
    "pulumi": ("GPUCTL_PULUMI",),
    "region": ("GPUCTL_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"),
    "state": ("GPUCTL_STATE",),
}
"""The settings, each with its variables; the first one that is set counts."""

FLAGS: Mapping[str, str] = {
    "aws_profile": "--profile", "backend": "--backend", "region": "--region",
}  # fmt: skip

DEFAULTS: Mapping[str, tuple[Any, str]] = {
    "aws_profile": (None, "boto3's default profile"),
    "backend": (None, "a folder in `state`"),
    "check_permissions": (True, "default"),
    "gc_regions": (None, "all that the account has enabled"),
    "lifetime": (None, "none: clusters without `lifetime` do not end by themselves"),
    "owner": (None, "the ARN of your credentials"),
    "pulumi": (None, "`pulumi` on PATH, or gpuctl's own"),
    "region": (None, "the AWS profile's"),
}


@dataclass(frozen=True)
class Setting:
    """A setting's value, and where it comes from; None is a value that something else decides.

    `lifetime` is in seconds.
    """

    name: str
    value: Any
    source: str


def settings_file() -> Path:
    """Return the file's path; it need not exist."""
    return config_home() / "config.yaml"


def settings(flags: Mapping[str, Any] | None = None) -> dict[str, Setting]:
    """Return all settings by name; `flags` are the options of the command line.

    Raises InvalidFiles with the mistakes of the file, InputError for a wrong variable.
    """
    given = flags or {}
    file = _read()
    chosen = {name: _variable(name) or file.get(name) or _default(name) for name in VARIABLES}
    for name, flag in FLAGS.items():
        if given.get(name) is not None:
            chosen[name] = Setting(name, given[name], flag)
    if "AWS_ACCESS_KEY_ID" in os.environ and chosen["aws_profile"].source.startswith(_SHOWN):
        # A profile that boto3 gets by name would override the keys of the variables.
        chosen["aws_profile"] = Setting("aws_profile", None, "$AWS_ACCESS_KEY_ID has the keys")
    return chosen


def export_state() -> None:
    """Let this process and its children use the file's `state`, unless a variable says another.

    Most files have none: they are not parsed. Raises InvalidFiles with the mistakes of the file.
    """
    if os.environ.get("GPUCTL_STATE"):
        return
    try:
        has_state = b"state" in read_regular(settings_file())
    except OSError:
        return  # no file; `settings` reports one that cannot be read
    if has_state and (setting := _read().get("state")):
        os.environ["GPUCTL_STATE"] = str(user_path(setting.value))


_SHOWN = "profile ", "/", "~"
"""How the sources of values from the file begin."""


def _variable(name: str) -> Setting | None:
    for variable in VARIABLES[name]:
        if text := os.environ.get(variable):
            if not variable.startswith("GPUCTL_"):
                return Setting(name, text, f"${variable}")  # AWS's own tools check it
            return Setting(name, settings_model.value_of_text(name, text, variable), f"${variable}")
    return None


def _default(name: str) -> Setting:
    if name == "state":
        return Setting(name, str(state_home()), "default")
    value, source = DEFAULTS[name]
    return Setting(name, value, source)


def _read() -> dict[str, Setting]:
    """Return the file's settings, those of its chosen profile first; empty without a file."""
    path, profile = settings_file(), os.environ.get(PROFILE)
    if not path.exists():
        if profile:
            raise InputError(
                f"{PROFILE} is '{profile}', but {_short(path)} does not exist",
                "create it, or unset the variable",
            )
        return {}
    document, model, mistakes = settings_model.read_settings(path)
    if mistakes:
        raise InvalidFiles(mistakes)
    if document is None or model is None:
        return {}
    name = profile or model.profile
    if profile and profile not in model.profiles:
        raise InputError(
            f"{PROFILE} is '{profile}', which is no profile of {_short(path)}",
            f"it has {', '.join(model.profiles) or 'none'}",
        )
    result = dict(_of(model, document, path, ()))
    if name:
        place = ("profiles", name)
        result |= _of(model.profiles[name], document, path, place)
    return result


def _of(
    model: Any, document: Any, path: Path, place: tuple[str, ...]
) -> Iterator[tuple[str, Setting]]:
    """Yield the settings that a part of the file sets, with the line of each."""
    for name in VARIABLES:
        value = getattr(model, name)
        if value is not None:
            line = document.position((*place, name), on_key=True)[1]
            where = f"{_short(path)}:{line}"
            source = f"profile {place[-1]} ({where})" if place else where
            yield name, Setting(name, value, source)


def _short(path: Path) -> str:
    """Return the path with `~` for the home."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)
