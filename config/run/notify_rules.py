"""Rules about `notify` that need more than one of its keys: raw data in, mistakes out."""

from collections.abc import Iterator
from typing import Any

from config.cluster.cluster_rules import Data
from config.mistakes import Mistake, Path

OWN_PREFIX = "GPUCTL_"
"""The beginning of the variables that gpuctl sets for a command."""

_NEEDS = {"form": "webhook", "headers": "webhook", "env": "command"}


def notify_mistakes(data: Data) -> Iterator[Mistake]:
    """Yield the mistakes in the targets of `notify`; wrong types are the model's matter."""
    targets = data.get("notify")
    for index, target in enumerate(targets if isinstance(targets, tuple) else ()):
        if isinstance(target, dict):
            at: Path = ("notify", index)
            yield from _target(target, f"notify[{index}]", at)
            yield from _variables(target.get("env"), f"notify[{index}].env", at)


def _target(target: dict[Any, Any], name: str, at: Path) -> Iterator[Mistake]:
    has = [key for key in ("webhook", "command", "email") if target.get(key) is not None]
    if not has:
        hint = "add `webhook: {secret: NAME}`, `command: …` or `email: {…}`"
        yield Mistake("E102", f"'{name}' has no webhook, command or email", hint, at)
        return
    if has[1:]:
        hint = "write an entry of `notify` for each"
        yield Mistake("E223", f"'{name}' has {' and '.join(has)}", hint, (*at, has[1]))
        return
    for key, needs in _NEEDS.items():
        if key in target and has != [needs]:
            message = f"'{name}.{key}' has no effect: there is no '{needs}'"
            yield Mistake("E223", message, "remove it", (*at, key), on_key=True)


def _variables(env: Any, name: str, at: Path) -> Iterator[Mistake]:
    """Yield a mistake for each variable that gpuctl sets itself."""
    is_mapping = isinstance(env, dict)
    entries = env if isinstance(env, (dict, tuple)) else ()
    for index, entry in enumerate(entries):
        variable = entry.partition("=")[0] if isinstance(entry, str) else ""
        if variable.startswith(OWN_PREFIX):
            message = f"'{variable}' cannot be set in '{name}': gpuctl sets variables of that form"
            place = entry if is_mapping else index
            hint = "choose another name"
            yield Mistake("E221", message, hint, (*at, "env", place), on_key=is_mapping)
