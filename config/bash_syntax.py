"""Find what is wrong with an entry of commands before anything runs, as bash itself sees it.

`bash -n` reads commands and does not execute them. It only warns of a here-document without its
end, and then runs the command that gets the rest of the text. At `[[ ]]` and `[[ -f a && ]]` it
stops reading without a word, and ends with 0 (bash 5.2.15, tried 2026-11-29). Such an entry is
found by a line after it that must be an error. The agent checks the entries again with the bash
that runs them (engine/agent/node/bash_entries.py).
"""

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache

_S = 10
_OLDEST = 4  # macOS has bash 3.2, which does not read what the nodes' bash reads
_LINE = re.compile(r"/dev/stdin: line ([0-9]+): (.*)")
_OPEN_HEREDOC = re.compile(r"warning: here-document at line ([0-9]+) .* \(wanted `(.*)'\)")
_OPEN_QUOTE = re.compile(r"unexpected EOF while looking for matching `(.)'")
# One line of such characters is an error only with one of bash's reserved words.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+ -]*")
_RESERVED = frozenset(
    (
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    )
)
_NOT_BASH = "correct it: `bash -n FILE` checks a file with these lines"
_ONE_ENTRY = "close it in the same entry, which bash reads by itself (`- |` for several lines)"


@dataclass(frozen=True)
class SyntaxFault:
    """The first mistake in a text of bash: its row from 1 on, what it is, and the remedy."""

    row: int
    what: str
    hint: str


@cache
def syntax_fault(text: str) -> SyntaxFault | None:
    """Return the first mistake in an entry, or None, also if bash does not answer on this machine.

    The nodes' bash checks it again.
    """
    if _PLAIN.fullmatch(text) and _RESERVED.isdisjoint(text.split()):
        return None
    try:
        fault = _fault(text)
        return None if fault is None or _version() < _OLDEST else fault
    except (OSError, subprocess.SubprocessError):
        return None


def _fault(text: str) -> SyntaxFault | None:
    is_wrong, lines = _errors(text)
    if is_wrong and not _errors(text, "-O", "extglob")[0]:  # which the entry itself may switch on
        is_wrong, lines = _errors(text, "-O", "extglob")
    heredocs = [match for _, line in lines if (match := _OPEN_HEREDOC.match(line))]
    if not is_wrong:
        if _is_read_to_its_end(text):
            return None
        if heredocs:
            return _open_heredoc(text, int(heredocs[0][1]), heredocs[0][2])
        return _empty_condition(text)
    wrong = [(row, line) for row, line in lines if not line.startswith("warning: ")]
    last = len(text.rstrip().splitlines())
    if not wrong:
        return None
    row, line = wrong[0]
    quote = _OPEN_QUOTE.match(line)
    if quote:
        return SyntaxFault(min(row, last), f"has no {quote[1]} that closes", _ONE_ENTRY)
    if heredocs:  # it has swallowed the line that the error misses
        return _open_heredoc(text, int(heredocs[0][1]), heredocs[0][2])
    if line.startswith("syntax error: unexpected end of file"):
        what = "ends within a command: an if, for, case or { is open"
        return SyntaxFault(last, what, _ONE_ENTRY)
    return SyntaxFault(min(row, last), f"is not bash: {line}", _NOT_BASH)


def _is_read_to_its_end(text: str) -> bool:
    return _errors(f"{text}\n)\n", "-O", "extglob")[0]


def _empty_condition(text: str) -> SyntaxFault:
    lines = text.splitlines()
    rows = [row for row, line in enumerate(lines, 1) if "[[" in line]
    unread = (row for row in rows if not _is_read_to_its_end("\n".join(lines[:row])))
    what = "has a [[ … ]] in which an operand is missing: bash ends there, with 0"
    hint = 'write what is tested, in quotes if it may be empty: `[[ -n "$NAME" ]]`'
    return SyntaxFault(next(unread, len(lines)), what, hint)


def _open_heredoc(text: str, row: int, word: str) -> SyntaxFault:
    what = f"has a here-document without its end: no line is {word} alone"
    hint = f"write {word} alone on a line of the same entry (`- |` for several lines)"
    for number, line in enumerate(text.splitlines(), 1):
        if number > row and line.strip() == word:
            what = f"has a here-document without its end: {word} has spaces before or after it"
            hint = f"write {word} alone, in the column of the entry's first line"
    return SyntaxFault(row, what, hint)


def _errors(text: str, *options: str) -> tuple[bool, list[tuple[int, str]]]:
    """Return whether bash rejects the text, and the rows and messages of errors and warnings."""
    # An empty environment: BASH_ENV and exported functions would be executed.
    done = subprocess.run(
        ["bash", *options, "-n", "/dev/stdin"],
        input=text.encode(errors="surrogateescape"),
        capture_output=True,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        timeout=_S,
        check=False,
    )
    lines = map(_LINE.match, done.stderr.decode(errors="replace").splitlines())
    problems = [(int(line[1]), line[2]) for line in lines if line]
    # bash reports a wrong `[[ … ]]`, and goes on.
    is_wrong = done.returncode != 0 or any(not text.startswith("warning: ") for _, text in problems)
    return is_wrong, problems


@cache
def _version() -> int:
    done = subprocess.run(
        ["bash", "-c", "echo $BASH_VERSINFO"],
        capture_output=True,
        env={"PATH": os.environ.get("PATH", os.defpath)},
        timeout=_S,
        check=False,
    )
    return int(done.stdout.strip() or b"0")
