"""Parts of messages: a value as a person would write it, and the nearest allowed one."""

import difflib
from collections.abc import Iterable
from typing import Any

_LONGEST_QUOTE = 40
_LONGEST_NAME = 100  # difflib's time grows with the square of it


def names_hint(name: str, allowed: Iterable[str], most: int = 200) -> str:
    """Return the nearest allowed name, or as many of them as `most` characters have."""
    names = tuple(allowed)
    near = difflib.get_close_matches(name[:_LONGEST_NAME], names, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    shown = list(names)
    while len(", ".join(shown)) > most:
        shown.pop()
    more = f" and {len(names) - len(shown)} more" if names[len(shown) :] else ""
    return f"allowed here: {', '.join(shown)}{more}"


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
    return f"the {'boolean' if isinstance(value, bool) else 'number'} {shorten(text)}"


def choice_hint(value: Any, allowed: tuple[str, ...]) -> str:
    """Return the nearest of the allowed values and all of them, or just all."""
    near: list[str] = []
    if isinstance(value, str) and value:
        near = [name for name in allowed if name.startswith(value.lower())][:1]
    if isinstance(value, str) and not near:
        near = difflib.get_close_matches(value[:_LONGEST_NAME], allowed, n=1)
    if near:
        return f"did you mean '{near[0]}'? Allowed: {', '.join(allowed)}"
    return f"use {', '.join(allowed[:-1])} or {allowed[-1]}" if allowed[1:] else f"use {allowed[0]}"


def quote(text: str) -> str:
    """Return the text in quotes, cut to 40 characters."""
    return f"'{shorten(text)}'"


def shorten(text: str, most: int = _LONGEST_QUOTE) -> str:
    """Return the text cut to so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
