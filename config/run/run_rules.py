"""Rules about run files that need more than one field's type: raw data in, mistakes out.

The rules do not know the cluster; engine/plan/rules.py has those that depend on the nodes.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from config.cluster.cluster_rules import Data
from config.command_rules import command_mistakes
from config.duration import parse_duration
from config.mistakes import Mistake, Path, path_text
from config.run.container_fields import placeholder_mistakes
from config.run.elastic import elastic_mistakes
from config.run.launcher_rules import launcher_mistakes
from config.run.notify import notify_mistakes
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
    yield from _hang(data)
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
_BRACED = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)\}")
_EXPANSION = re.compile(r"(?<!\$)(\$\{#?[A-Za-z_]\w*)[^\w{}][^{}]*\}")
_COMMAND = re.compile(r"\$\(|`[^`]+`")
_HOME = re.compile(r"(?:^|:)~(?:/|$)")
_OF_A_SHELL = frozenset(("PWD", "OLDPWD", "RANDOM", "SECONDS", "UID", "EUID", "PPID"))


def unread_texts(data: Data, run_type: str) -> Iterator[Mistake]:
    """Warn of values of `env`, and arguments of mpirun, that only a shell would read.

    In a manifest they are texts too: Kubernetes does not read them either.
    """
    for env_at, env in _environments(data):
        for name, at, text in _values(env):
            whole, unread = path_text((*env_at, name)), _unread(text, name, run_type)
            if unread:
                message = f"'{whole}' has {unread[0]}"
                place = (*env_at, at)
                yield Mistake("W210", message, unread[1], place, on_key=isinstance(env, dict))
    arguments = data.get("mpirun_args")
    for index, text in enumerate(arguments if isinstance(arguments, tuple) else ()):
        unread = _unread(text, "", run_type) if isinstance(text, str) else None
        if unread:
            hint = "set the variable in 'env', which every rank gets: ${NAME} is its value there"
            argument: Path = ("mpirun_args", index)
            yield Mistake("W210", f"'{path_text(argument)}' has {unread[0]}", hint, argument)


def _unread(text: str, name: str, run_type: str) -> tuple[str, str] | None:
    """Return the part of a variable's text that no shell reads, and a remedy; None for no part."""
    bare, commands = _BARE.search(text), f"set it in 'commands': export {name}=…"
    late = [braced for braced in _BRACED.findall(text) if _is_late(braced, run_type)]
    if late:
        return f"${{{late[0]}}} in it, which is not set yet: it is empty", commands
    if bare:
        what = f"${bare[1]}"
        node = f"write ${{{bare[1]}}} for the value on the node"
        hint = commands if _is_late(bare[1], run_type) else node
    elif expansion := _EXPANSION.search(text):
        what, hint = f"{expansion[1]}…}}", commands
    elif _COMMAND.search(text):
        what, hint = "a command", f"set it in 'commands': export {name}=$(…)"
    elif _HOME.search(text):
        what, hint = "~", "write ${HOME} for the home folder on the node"
    else:
        return None
    return f"{what} in it, which stays as it is written: no shell reads it", hint


def _is_late(name: str, run_type: str) -> bool:
    """Return whether a variable exists in the job alone, when `env` has been read."""
    return name in _OF_A_SHELL or (
        owner(run_type, name) is not None and not name.startswith(("DSTACK_", "GPUCTL_"))
    )


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


def _hang(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes of a `hang` that other keys keep from its effect."""
    hang, retry = data.get("hang"), data.get("retry")
    if not isinstance(hang, dict):
        return
    if hang.get("action") == "restart":
        at, causes = ("hang", "action"), retry.get("on") if isinstance(retry, dict) else None
        if retry is None:
            message = "'hang.action' is restart, but there is no 'retry'"
            yield Mistake("E223", message, "write how often: retry: {attempts: 3}", at)
        elif isinstance(causes, tuple) and "no-output" not in causes:
            message = "'hang.action' is restart, but 'retry.on' lacks no-output"
            yield Mistake("E223", message, "add it there", at)
    after, limit = hang.get("after", "5m"), data.get("no_output_timeout")
    with contextlib.suppress(ValueError):  # the model reports it
        if limit is not None and parse_duration(limit) <= parse_duration(after):
            message = f"'hang' has no effect: 'no_output_timeout' ends the run after {limit}"
            hint = f"write a longer one than {after}, or remove it"
            yield Mistake("E223", message, hint, ("hang",), on_key=True)


def _ports(data: Data) -> Iterator[Mistake]:
    """Yield a mistake for each port that does not exist."""
    ports = data.get("ports")
    for index, port in enumerate(ports if isinstance(ports, tuple) else ()):
        numbers = [int(part[:9]) for part in str(port).split(":") if part.isdecimal()]
        if any(not 1 <= number <= 65535 for number in numbers):
            message = f"'ports[{index}]' is {describe_value(port)}, which is no port"
            yield Mistake("E202", message, "use 1 to 65535", ("ports", index))
