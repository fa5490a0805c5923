"""Secrets of a run. The client reads them when the run starts; gpuctl never stores them."""

import os
from dataclasses import replace
from pathlib import Path

from config.command_text import command_text
from config.errors import InputError
from config.files import read_regular
from config.folders import config_home
from config.run.run_file import Run
from config.sensitive import is_credential
from engine.contract.node_plan import ImagePlan
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import WRITTEN_PASSWORD
from engine.plan.notify_plan import check_secrets, secret_names

_LONGEST = 128 << 10
"""Bytes of a value: Linux passes no longer variable (MAX_ARG_STRLEN, execve(2))."""


def credentials(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the plan's secrets that are the user's own credentials in this environment.

    The run file may be from a stranger, so the user must agree to send them. Secrets in gpuctl's
    own files are not included: they are meant for runs.
    """
    present = (name for name in _names(plan) if name in os.environ)
    return tuple(name for name in present if is_credential(name))


def is_notifications_alone(plan: LaunchPlan, name: str) -> bool:
    """Return whether only the run's notifications need the secret, and not its job."""
    return name not in _names(replace(plan, notify=()))


def resolve(plan: LaunchPlan, run: Run | None = None) -> dict[str, str]:
    """Return the value of every secret that the plan names, also the image's password.

    A value is from this process's environment, else from the file `secrets/NAME` in config_home().
    The password may be in the run file itself, `run`. Raises InputError if a value is in neither,
    if other users have access to the file, or if a notification cannot use its value.
    """
    values = {name: look_up(name) for name in _names(plan) if name != WRITTEN_PASSWORD}
    check_secrets(plan.notify, values)
    auth = run.registry_auth if run else None
    if auth is not None and isinstance(auth.password, str):
        values[WRITTEN_PASSWORD] = auth.password
    return values


def registry_password(image: ImagePlan) -> str:
    """Return the password of the image's registry, for a client without the run file.

    The plan is the head's, and so may name any variable of this environment. Raises InputError if
    that is a credential of the user's own, which only `gpuctl run` may ask for.
    """
    if image.password_secret == WRITTEN_PASSWORD:
        raise InputError(
            f"the password for {image.reference} is in the run file, which this command does not"
            " have",
            "let `gpuctl run` make the node again, or write the password as {secret: NAME}",
        )
    if image.password_secret in os.environ and is_credential(image.password_secret):
        raise InputError(
            f"the run takes {image.password_secret} from your environment as the password for"
            f" {image.reference}, and it is a credential of yours",
            "let the `gpuctl run` that started the run make the node again",
        )
    return look_up(image.password_secret)


def _names(plan: LaunchPlan) -> list[str]:
    names = {name for node in plan.nodes for name in node.secrets.values()}
    if plan.image and plan.image.password_secret:
        names.add(plan.image.password_secret)
    return sorted(names | secret_names(plan.notify))


def look_up(name: str) -> str:
    """Return the value of one secret, see `resolve`; without the line end of a file's last line."""
    value, place = os.environ.get(name), "your environment"
    if value is None:
        path = config_home() / "secrets" / name
        value, place = _read(name, path), str(path)
    if not value:
        raise InputError(f"secret {name} is empty in {place}", "set it to a value")
    if "\0" in value:
        raise InputError(f"secret {name} has a NUL character in {place}", "remove that character")
    return value


def _read(name: str, path: Path) -> str:
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise InputError(
                f"secret {name}: {path} is accessible to other users (mode {mode:04o})",
                f"{command_text('chmod 600 {}', path)}, and rotate the secret:"
                " others may have read it",
            )
        # Editors of Windows put a byte order mark in front of a text.
        text = read_regular(path, _LONGEST).decode("utf-8-sig")
        return text.removesuffix("\n").removesuffix("\r")
    except FileNotFoundError as error:
        raise InputError(
            f"secret {name} is neither in your environment nor in {path}",
            f"{command_text('export {}=…', name)}, or write the value into that file with mode 600",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"secret {name}: {path} cannot be read: {reason}", "correct the file"
        ) from error
