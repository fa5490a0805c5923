"""The last check of the user's commands, with the bash that will run them.

A script of the user's commands has in its first line which of its lines are an entry: a pair of
numbers each. Each entry is checked by itself, since an open quote or here-document would take what
follows for text: nothing would run, and the script would end with 0. `config/bash_syntax.py` has
the same check for the user's files, where it names line and column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

ENTRIES = "# gpuctl: entries "
"""The beginning of the first line of such a script."""

_LINE = re.compile(r"/dev/stdin: line (\d+): (?!warning: )(.*)")
_OPEN = re.compile(r"/dev/stdin: line \d+: (warning: here-document at line \d+ .*)")

Bash = Callable[["list[str]", str], str]
"""Calls bash with arguments and a text on stdin, and returns what it writes to stderr."""


def first_fault(scripts: list[str], bash: Bash) -> str | None:
    """Return what is wrong with the first entry of the scripts that bash cannot read, or None."""
    checked = set()
    for script in scripts:
        for number, entry in _entries(script):
            fault = None if entry in checked else _fault(entry, bash)
            if fault:
                return f"entry {number} of its commands is not bash: {fault}"
            checked.add(entry)
    return None


def _entries(script: str) -> Iterator[tuple[int, str]]:
    first, _, _ = script.partition("\n")
    if first.startswith(ENTRIES):
        lines = script.split("\n")
        for number, pair in enumerate(first[len(ENTRIES) :].split(), 1):
            begin, _, end = pair.partition("-")
            yield number, "\n".join(lines[int(begin) - 1 : int(end)])


def _fault(entry: str, bash: Bash) -> str | None:
    errors = bash(["-n", "/dev/stdin"], entry)
    if _LINE.search(errors):  # an entry may switch extglob on for its next line
        errors = bash(["-O", "extglob", "-n", "/dev/stdin"], entry)
    wrong, heredoc = _LINE.search(errors), _OPEN.search(errors)
    if wrong:
        return f"line {wrong[1]}: {wrong[2]}"
    # bash only warns of a here-document without its end, and stops reading at `[[ ]]` without a
    # word. Then a line after it that must be an error is none.
    if not (heredoc or "[[" in entry):
        return None
    if _LINE.search(bash(["-O", "extglob", "-n", "/dev/stdin"], f"{entry}\n)\n")):
        return None
    return heredoc[1].partition(": ")[2] if heredoc else "an operand is missing in a [[ … ]]"
