"""A file of dstack while it is read: values in every form that dstack's models accept.

dstack reads YAML 1.1 with PyYAML (`off` is false), and its models turn `"2"` into 2 and 3.12 into
text (core/models/common.py and quantities.py of dstackai/dstack@511c318c, 2026-08-21).
"""

import re
from collections.abc import Sequence

from config.mistakes import Path, path_text
from config.run.requirements import COUNTS, REQUIREMENT_FORMS, SIZES
from config.yaml.hints import choice_hint, describe_value, names_hint
from formats.task_file import TaskFile

_DURATION = re.compile(r"([0-9]{1,9}) *([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DIGITS = re.compile(r"[0-9]{1,18}")
_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(mb|gb|tb)?")


class DstackFile(TaskFile):
    """The values of a file of dstack by their paths, and the mistakes found so far."""

    tool = "dstack"

    def texts(self, at: Path) -> tuple[str, ...]:
        """Return the entries of a list of texts; one text is a list of one."""
        if isinstance(self.get(at), str):
            return (self.text(at),)
        return super().texts(at)

    def whole(self, at: Path, default: int, least: int = 1, most: int = 10**17) -> int:
        """Return the whole number, also from text of digits; `default` if there is none."""
        value = self.get(at)
        if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
            return min(max(int(value), least), most)
        return super().whole(at, default, least, most)

    def one_of(self, at: Path, allowed: Sequence[str]) -> str:
        """Return one of the allowed texts; empty if there is none."""
        value = self.text(at)
        if value and value not in allowed:
            message = f"'{path_text(at)}' is {describe_value(value)}, which is not allowed"
            self.complain("E201", message, choice_hint(value, tuple(allowed)), at)
            return ""
        return value

    def flag(self, at: Path) -> bool:
        """Return the boolean, also from 0, 1 and the words of YAML 1.1; False if there is none."""
        value = self.get(at)
        if isinstance(value, (str, int)) and str(value).lower() in ("1", "true", "on", "yes"):
            return True
        if isinstance(value, (str, int)) and str(value).lower() in ("0", "false", "off", "no"):
            return False
        return super().flag(at)

    def number(self, at: Path) -> float | None:
        """Return the number, also from text; None if there is none."""
        value = self.get(at)
        try:
            return None if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            self._mistyped(at, "a number", "write digits, and a point if need be, such as 12.50")
            return None

    def seconds(self, at: Path) -> int | None:
        """Return the seconds of a duration; None for `off`, `false`, `true` and a missing one."""
        value = self.get(at)
        if value is None or isinstance(value, bool) or value == "off":
            return None
        match = _DURATION.fullmatch(str(value).strip())
        if match:
            return int(match[1]) * _SECONDS[match[2]]
        if _DIGITS.fullmatch(str(value).strip()):
            return int(value)
        message = f"'{path_text(at)}' is {describe_value(value)}, which is no duration"
        hint = "write a whole number and a unit: s, m, h, d or w (30m, 1w), or off"
        self.complain("E203", message, hint, at)
        return None

    def duration_text(self, seconds: int) -> str:
        """Return the duration as run files have it, rounded up: six digits at most."""
        units = (("s", 1), ("m", 60), ("h", 3600))
        unit, size = next((unit, size) for unit, size in units if seconds < size * 10**6)
        return f"{-(-seconds // size)}{unit}"

    def counts(self, at: Path) -> str | None:
        """Return a range of whole numbers in gpuctl's form; None if there is none."""
        return self._range(at, is_size=False)

    def sizes(self, at: Path) -> str | None:
        """Return a range of sizes in gpuctl's form; None if there is none."""
        return self._range(at, is_size=True)

    def range_of(self, text: str, at: Path, *, is_size: bool) -> str | None:
        """Return a range that is part of a longer text; report a wrong one."""
        pattern = SIZES if is_size else COUNTS
        first, dots, last = text.replace(" ", "").partition("..")
        ends = [_size(end) if is_size and end else end for end in (first, last)]
        whole = f"{ends[0]}{dots}{ends[1]}"
        if re.fullmatch(pattern, whole):
            return whole
        message = f"'{path_text(at)}' is {describe_value(self.get(at))}"
        self.complain("E203", message, f"write {REQUIREMENT_FORMS[pattern]}", at)
        return None

    def unknown_keys(self, at: Path, known: Sequence[str]) -> None:
        """Warn of keys of the mapping that dstack does not have there either."""
        for key in self.mapping(at):
            if key not in known:
                self.report_unknown((*at, key), names_hint(key, known))

    def _range(self, at: Path, *, is_size: bool) -> str | None:
        value = self.get(at)
        if value is None:
            return None
        if isinstance(value, dict):
            self.unknown_keys(at, ("min", "max"))
            text = "..".join(self.text((*at, end)) for end in ("min", "max"))
        else:
            text = self.text(at)
        return self.range_of(text, at, is_size=is_size) if text else None


def _size(text: str) -> str:
    """Return `80GB` for `80gb`, `80` and `80.0GB`; a text that is no size unchanged."""
    match = _UNIT.fullmatch(text.lower())
    if match is None:
        return text
    return f"{float(match[1]):g}{(match[2] or 'gb').upper()}"
