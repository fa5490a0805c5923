"""Mistakes: what is wrong with a value, before its line in the file is known."""

from dataclasses import dataclass

from pydantic_core import PydanticCustomError

Path = tuple[str | int, ...]
"""Keys and indexes from the top of a file to a value."""

_LONGEST_KEY = 40
_ENDS = 5

REFUSED = "gpuctl"
"""The type of the pydantic errors that carry gpuctl's mistakes."""


MOST_MISTAKES = 100
"""The limit of the mistakes of one kind that are reported: nobody corrects more at once."""


@dataclass(frozen=True)
class Mistake:
    """One mistake in the value at `at`, or in its key if `on_key`.

    `row` is the line of a longer text in which the mistake is, from 1 on; 0 for the whole text.
    """

    code: str
    message: str
    hint: str
    at: Path = ()
    on_key: bool = False
    row: int = 0


def refusal(*mistakes: Mistake) -> PydanticCustomError:
    """Return the error for a validator to raise; `at` of each mistake is relative to the value."""
    text = "; ".join(f"{mistake.message}; {mistake.hint}" for mistake in mistakes)
    return PydanticCustomError(REFUSED, "{text}", {"text": text, "mistakes": mistakes})


def path_text(path: Path) -> str:
    """Return a path as people write it: `network.cidr`, `commands[0]`.

    Long keys are cut, and of a long path the middle is left out.
    """
    shown = path if len(path) <= 2 * _ENDS else (*path[:_ENDS], "…", *path[-_ENDS:])
    parts = (f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" for part in shown)
    return "".join(parts).removeprefix(".")


def _cut(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY - 1]}…"
