"""Secrets of a run: looked up on the client when it starts, never written down by gpuctl."""

import os
import re
from pathlib import Path

from config.errors import InputError
from config.folders import config_home
from engine.launch_plan import LaunchPlan

_CREDENTIALS = re.compile(
    r"(AWS|AZURE|ARM|GOOGLE|GCP|GCLOUD|CLOUDSDK|OCI|PULUMI|TF|VAULT|SSH|GPG|KUBE|DOCKER|DATABASE)_.*"
    r"|KUBECONFIG|PGPASSWORD|(GITHUB|GH|GITLAB|NPM|NODE_AUTH|PYPI|TWINE|CARGO|SLACK)_.*",
    re.IGNORECASE,
)
"""Names under which people keep what opens their accounts and machines, and no job's data."""


def credentials(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the secrets of the plan that this process's environment has for the person's own use.

    Whoever wrote the run file may be a stranger. What is in a file of gpuctl's is there for runs.
    """
    wanted = (name for name in _names(plan) if name in os.environ)
    return tuple(name for name in wanted if _CREDENTIALS.fullmatch(name))


def resolve(plan: LaunchPlan) -> dict[str, str]:
    """The value of every secret that the plan names: nodes' variables, and the image's password.

    A variable of this process's environment, else the file `secrets/NAME` in config_home(). Raises
    InputError where neither is there, or where the file is not for its owner's eyes alone.
    """
    return {name: look_up(name) for name in _names(plan)}


def _names(plan: LaunchPlan) -> list[str]:
    names = {name for node in plan.nodes for name in node.secrets.values()}
    if plan.image and plan.image.password_secret:
        names.add(plan.image.password_secret)
    return sorted(names)


def look_up(name: str) -> str:
    """The value of one secret; see `resolve`. A file's last line end is not part of it."""
    value, place = os.environ.get(name), "your environment"
    if value is None:
        path = config_home() / "secrets" / name
        value, place = _read(name, path), str(path)
    if not value:
        raise InputError(f"secret {name} is empty in {place}", "give it its value")
    if "\0" in value:
        raise InputError(f"secret {name} has a NUL character in {place}", "write it as text")
    return value


def _read(name: str, path: Path) -> str:
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise InputError(
                f"secret {name}: {path} is open to others (mode {mode:04o})",
                f"`chmod 600 {path}`, and take the value for known",
            )
        return path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except FileNotFoundError as error:
        raise InputError(
            f"secret {name} is neither in your environment nor in {path}",
            f"`export {name}=…`, or write it into that file with mode 600",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"secret {name}: {path} cannot be read: {reason}", "mend it") from error
