"""Plain words on the terminal, for commands that must start fast (no rich here).

All that gpuctl prints passes here. What jobs, nodes, AWS and its tags say may hold control
characters that retitle, clear or rewrite a reader's terminal: they are shown, not obeyed.
"""

import json
import re
import sys
from typing import Any, TextIO

is_raw = False
"""True where control characters pass as they are (the option --raw)."""

# Colours pass (SGR). C0 but for tab and newline, DEL and C1; and what turns the direction of text.
_CONTROLS = re.compile(r"\x1b\[[0-9;:]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """Return the text with control characters made visible, escape as `^[`."""
    if is_raw or text.isprintable():
        return text
    return _CONTROLS.sub(_visible, text)


def _visible(found: "re.Match[str]") -> str:
    control = found[0]
    if len(control) > 1:
        return control
    code = ord(control)
    if code < 32 or code == 127:
        return f"^{chr(code ^ 64)}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def say(text: str, to: TextIO | None = None) -> None:
    """Print the text, on stdout or `to`."""
    print(shown(text), file=to, flush=True)


def warn(text: str) -> None:
    """Print one line of warning on stderr."""
    say(f"gpuctl: warning: {text}", sys.stderr)


def say_json(value: Any) -> None:
    """Print the value on stdout as one JSON document."""
    print(json_text(json.dumps(value, indent=2, default=str, ensure_ascii=False)), flush=True)


def json_text(text: str) -> str:
    """Return the JSON text with all that could act on a terminal escaped; its values are equal."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
