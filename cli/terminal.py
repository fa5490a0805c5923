"""Plain words on the terminal, for commands that must start fast (no rich here)."""

import json
import sys
from typing import Any


def say(text: str) -> None:
    """The text is on stdout."""
    print(text, flush=True)


def warn(text: str) -> None:
    """One line of warning is on stderr."""
    print(f"gpuctl: warning: {text}", file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """The value is on stdout as one JSON document."""
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False), flush=True)


def money(amount: float | None) -> str:
    """`$43.92`, or `unknown`."""
    return "unknown" if amount is None else f"${amount:,.2f}"


def price(amount: float | None) -> str:
    """The price of an hour of something: as `money`, but `$0.045` for what costs cents."""
    if amount is None or amount >= 1:
        return money(amount)
    return f"${amount:.3f}"


def elapsed(seconds: float) -> str:
    """`1m 05s`, `12s`, `2h 03m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
