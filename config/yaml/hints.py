"""Parts of messages: a value as a person would write it, and the nearest allowed one."""

import difflib
from collections.abc import Iterable
from typing import Any

_LONGEST_QUOTE = 40


def names_hint(name: str, allowed: Iterable[str]) -> str:
    """Return the nearest allowed name, or all of them."""
    names = tuple(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else f"allowed here: {', '.join(names)}"


def describe_value(value: Any, written: str = "") -> str:
    """Return the value as a person would write it; `written` is its text in the file."""
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = written or str(value)
    if isinstance(value, str):
        return quote(text)
    return f"the {'boolean' if isinstance(value, bool) else 'number'} {text}"


def choice_hint(value: Any, allowed: tuple[str, ...]) -> str:
    """Return the nearest of the allowed values and all of them, or just all."""
    near = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
    if near:
        return f"did you mean '{near[0]}'? Allowed: {', '.join(allowed)}"
    return f"use {', '.join(allowed[:-1])} or {allowed[-1]}" if allowed[1:] else f"use {allowed[0]}"


def quote(text: str) -> str:
    """Return the text in quotes, cut to 40 characters."""
    return f"'{text}'" if len(text) <= _LONGEST_QUOTE else f"'{text[: _LONGEST_QUOTE - 1]}…'"
