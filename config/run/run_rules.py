"""Rules about run files that need more than one field's type: raw data in, mistakes out.

The rules do not know the cluster; engine/plan/rules.py has those that depend on the nodes.
"""

import re
from collections.abc import Iterator
from typing import Any

from config.cluster.cluster_rules import Data
from config.command_rules import command_mistakes
from config.mistakes import Mistake, Path, path_text
from config.run.elastic import elastic_mistakes
from config.run.image_reference import placeholder_mistakes
from config.run.launcher_rules import launcher_mistakes
from config.run.notify_rules import notify_mistakes
from config.run.owned_variables import owner
from config.run.role_rules import role_mistakes
from config.run.run_file import RUN_TYPES
from config.run.sweep_rules import sweep_mistakes
from config.yaml.hints import choice_hint, describe_value


def run_mistakes(data: Data, run_type: str) -> Iterator[Mistake]:
    """Yield the mistakes in a run file beyond types; `run_type` is the type it is checked as."""
    yield from _type(data)
    yield from _owned_names(data, run_type)
    yield from role_mistakes(data, run_type)
    yield from _without_effect(data)
    yield from command_mistakes(data)
    yield from launcher_mistakes(data, run_type)
    yield from _ports(data)
    yield from notify_mistakes(data)
    yield from placeholder_mistakes(data.get("image"), ("image",))
    yield from elastic_mistakes(data, run_type)
    if run_type == "nccl-tests":
        yield from sweep_mistakes(data)


def own_file_mistakes(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes of gpuctl's own files in what files of other tools may have."""
    auth = data.get("registry_auth")
    if isinstance(auth, dict) and isinstance(auth.get("password"), str):
        message = "'registry_auth.password' is ***, must be a mapping"
        hint = "write {secret: NAME} for the secret of that name"
        yield Mistake("E103", message, hint, ("registry_auth", "password"))


def _type(data: Data) -> Iterator[Mistake]:
    """Yield the mistake in `type`. The model cannot report it, because `type` chooses the model."""
    allowed = tuple(RUN_TYPES)
    if "type" not in data:
        hint = f"add it: {', '.join(allowed[:-1])} or {allowed[-1]}"
        yield Mistake("E102", "'type' is missing", hint)
    elif data["type"] not in allowed:
        message = f"'type' is {describe_value(data['type'])}, which is not allowed"
        yield Mistake("E201", message, choice_hint(data["type"], allowed), ("type",))


def _owned_names(data: Data, run_type: str) -> Iterator[Mistake]:
    """Yield a mistake for each variable that gpuctl or the launcher sets, and the file too."""
    for env_at, env in _environments(data):
        for name, at in _names(env):
            row = owner(run_type, name)
            if row is not None:
                message = f"'{name}' cannot be set in '{path_text(env_at)}': {row.why}"
                hint = "remove it, or choose another name"
                yield Mistake("E221", message, hint, (*env_at, at), on_key=isinstance(env, dict))


# Lower-case names are left alone: they may be part of a password.
_BARE = re.compile(r"(?<!\$)\$([A-Z_][A-Z0-9_]*)")


def unread_texts(data: Data) -> Iterator[Mistake]:
    """Warn of values of `env` that only a shell would read.

    In a manifest they are texts too: Kubernetes does not read them either.
    """
    for env_at, env in _environments(data):
        for name, at, text in _values(env):
            whole, bare = path_text((*env_at, name)), _BARE.search(text)
            if bare:
                what, hint = f"${bare[1]}", f"write ${{{bare[1]}}} for the value on the node"
            elif "$(" in text:
                what, hint = "a command", f"set it in 'commands': export {name}=$(…)"
            elif text.startswith("~/"):
                what, hint = "~", "write ${HOME} for the home folder on the node"
            else:
                continue
            message = f"'{whole}' has {what} in it, which stays as it is written: no shell reads it"
            yield Mistake("W210", message, hint, (*env_at, at), on_key=isinstance(env, dict))


def _values(env: Any) -> Iterator[tuple[str, str | int, str]]:
    """Yield the variables that have a text: name, key or index, and text."""
    if isinstance(env, dict):
        yield from ((name, name, text) for name, text in env.items() if isinstance(text, str))
    elif isinstance(env, tuple):
        for index, entry in enumerate(env):
            if isinstance(entry, str) and "=" in entry:
                name, _, text = entry.partition("=")
                yield name, index, text


def _environments(data: Data) -> Iterator[tuple[Path, Any]]:
    yield ("env",), data.get("env")
    roles = data.get("roles")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        if isinstance(role, dict):
            yield ("roles", name, "env"), role.get("env")


def _names(env: Any) -> Iterator[tuple[str, str | int]]:
    """Yield the variables that an `env` of either form sets, and their key or index."""
    if isinstance(env, dict):
        yield from ((name, name) for name in env)
    elif isinstance(env, tuple):
        for index, entry in enumerate(env):
            if isinstance(entry, str):
                yield entry.partition("=")[0], index


def _without_effect(data: Data) -> Iterator[Mistake]:
    for key in ("registry_auth", "privileged", "volumes"):
        if data.get(key) and data.get("image") is None:
            message = f"'{key}' has no effect: there is no 'image'"
            hint = "remove it, or write the image that is pulled"
            yield Mistake("E223", message, hint, (key,), on_key=True)
    if data.get("verify") == "require" and data.get("network") in ("tcp", "none"):
        message = f"'verify' is require, but 'network' is {data['network']}, which is no RDMA"
        yield Mistake("E223", message, "remove one of them", ("verify",))
    if data.get("verify") == "off" and data.get("network") == "rdma":
        message = "'verify' is off, but 'network' is rdma, which fails a run that uses sockets"
        yield Mistake("E223", message, "remove one of them", ("verify",))


def _ports(data: Data) -> Iterator[Mistake]:
    """Yield a mistake for each port that does not exist."""
    ports = data.get("ports")
    for index, port in enumerate(ports if isinstance(ports, tuple) else ()):
        numbers = [int(part) for part in str(port).split(":") if part.isdecimal()]
        if any(not 1 <= number <= 65535 for number in numbers):
            message = f"'ports[{index}]' is {describe_value(port)}, which is no port"
            yield Mistake("E202", message, "use 1 to 65535", ("ports", index))
