"""`env` of dstack's task: texts, secrets, and texts with secrets in them."""

import re
import shlex
from typing import Any

from config.mistakes import Path, path_text
from config.run.env import NAME_FORM
from formats.converted import Placed
from formats.dstack.dstack_file import DstackFile
from formats.dstack.references import Reference, secret_text


def environment(reading: DstackFile) -> tuple[dict[str, Any], list[str]]:
    """Return the variables, and lines of bash for those that have a secret within other text."""
    variables: dict[str, Any] = {}
    lines: list[str] = []
    for name, at, text in _variables(reading):
        if name in variables:
            message = f"'{path_text(at)}' sets {name} again"
            reading.complain("E207", message, "keep one of them", at)
        parts = (
            secret_text(reading, at, text) if text is not None else [Reference(f"secrets.{name}")]
        )
        if all(isinstance(part, str) for part in parts):
            variables[name] = Placed("".join(map(str, parts)), at)
        elif len(parts) == 1 and isinstance(parts[0], Reference):
            variables[name] = Placed({"secret": parts[0].key}, at)
        else:
            for part in parts:
                if isinstance(part, Reference):
                    variables.setdefault(part.key, Placed({"secret": part.key}, at))
            words = (p if isinstance(p, str) else None for p in parts)
            keys = (p.key if isinstance(p, Reference) else "" for p in parts)
            quoted = "".join(
                f'"${{{key}}}"' if word is None else shlex.quote(word)
                for word, key in zip(words, keys, strict=True)
            )
            lines.append(f"export {name}={quoted}")
    return variables, lines


def _variables(reading: DstackFile) -> list[tuple[str, Path, str | None]]:
    """Return name, path and text of each variable; the text of a bare name is None."""
    env = reading.get(("env",))
    variables: list[tuple[str, Path, str | None]] = []
    if isinstance(env, dict):
        for name in env:
            variables.append((name, ("env", name), reading.text(("env", name))))
        return variables
    for index in range(len(reading.entries(("env",)))):
        at: Path = ("env", index)
        name, equals, text = reading.text(at).partition("=")
        if re.fullmatch(NAME_FORM, name):
            variables.append((name, at, text if equals else None))
        elif reading.get(at) is not None:
            message = f"'{name}' names no variable"
            reading.complain("E207", message, "write NAME=value, or NAME for a secret", at)
    return variables


def variable(reading: DstackFile, reference: Reference) -> str | None:
    """Return the text of a variable of `env`; None for one that is a secret, or not there."""
    env = reading.get(("env",))
    if isinstance(env, dict):
        value = env.get(reference.key)
        return str(value) if value is not None and reference.namespace == "env" else None
    for entry in env if isinstance(env, tuple) and reference.namespace == "env" else ():
        name, equals, text = str(entry).partition("=")
        if name == reference.key and equals:
            return text
    return None
