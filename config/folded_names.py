"""Node names in the folded form that operators use: `node[0-3,5]` for five nodes."""

import re
from collections.abc import Iterable, Iterator

from config.errors import InputError
from config.number_ranges import fold_numbers

_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)")
_TERM = re.compile(r"([A-Za-z0-9._-]+)(?:\[([0-9,-]+)\]([A-Za-z0-9._-]*))?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
MOST_NAMES = 10_000
"""A limit above every cluster's size: `node[0-999999999]` is a typing mistake."""


def fold(names: Iterable[str]) -> str:
    """Return `node[0-3,5]` for five node names; names without a number stay as they are.

    Order and repetition of `names` do not matter: prefixes come in alphabetical order, numbers in
    rising order. Numbers with leading zeros are not folded, because the zeros would be lost.
    """
    numbers: dict[str, list[int]] = {}
    plain: list[str] = []
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbers.setdefault(match[1], []).append(int(match[2]))
    folded = [_fold(prefix, sorted(group)) for prefix, group in numbers.items()]
    return ",".join(sorted(folded + plain))


def _fold(prefix: str, numbers: list[int]) -> str:
    """Return `node[0-3,5]`, or `node5` for one number."""
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}"
    return f"{prefix}[{fold_numbers(numbers, ',')}]"


def expand(text: str) -> tuple[str, ...]:
    """Return the names in a folded text, in its order, each once: the reverse of `fold`.

    Raises InputError if `text` is not such a list, or has more than `MOST_NAMES` names.
    """
    names: dict[str, None] = {}
    for term in _split_terms(text):
        for name in _expand_term(term, text):
            names[name] = None
            if len(names) > MOST_NAMES:
                raise _wrong(f"'{text}' means more than {MOST_NAMES} nodes")
    return tuple(names)


_HINT = "write names such as node3, node[0-3,5] or node0,node2"


def _wrong(message: str) -> InputError:
    return InputError(message, _HINT)


def _split_terms(text: str) -> list[str]:
    """Return the parts between the commas that are outside brackets."""
    return re.split(r",(?![^\[]*\])", text)


def _expand_term(term: str, text: str) -> Iterator[str]:
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise _wrong(f"'{text}' is not a list of node names")
    if match[2] is None:
        yield match[1]
        return
    for part in match[2].split(","):
        bounds = _RANGE.fullmatch(part)
        if bounds is None or (bounds[2] and int(bounds[2]) < int(bounds[1])):
            raise _wrong(f"'{part}' in '{text}' is not a range")
        for number in range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1):
            yield f"{match[1]}{number}{match[3]}"
