"""The header of a batch script, as sbatch reads it: options, each with its place in the file.

The rules are those of `_opt_batch_script` and `get_argument` in src/sbatch/opt.c of
SchedMD/slurm@284c3b95: lines that begin with `#SBATCH`, up to the first line that is neither
empty nor a comment; words are split at blanks, quotes and backslashes group them, and `#` begins a
comment. Then getopt_long(3) reads the words: values behind `=` or as the next word, letters
together, long names shortened as long as they are unique. Of an option given twice the last counts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from formats.sbatch.options import OPTIONS, Option

MAGIC = "#SBATCH"
_BY_NAME = {option.name: option for option in OPTIONS}
_BY_LETTER = {option.letter: option for option in OPTIONS if option.letter}


@dataclass(frozen=True)
class Word:
    """A word of the header; `line` and `column` count from 0."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Given:
    """An option of the header: its name, its value, and the words that have them."""

    option: Option
    value: str
    at: Word
    value_at: Word


@dataclass(frozen=True)
class Fault:
    """A part of the header that sbatch would refuse."""

    message: str
    hint: str
    at: Word


@dataclass(frozen=True)
class Header:
    """The options of a header in their order, its faults, and lines behind its end."""

    options: tuple[Given, ...]
    faults: tuple[Fault, ...]
    unread: tuple[Word, ...]


def read_header(script: str) -> Header:
    """Return the options of the script's header."""
    words: list[Word] = []
    faults: list[Fault] = []
    unread: list[Word] = []
    has_ended = False
    for number, line in enumerate(script.split("\n")):
        if line.startswith(MAGIC):
            if has_ended:
                unread.append(Word(line, number, 0))
            else:
                _read_line(line, number, words, faults)
        elif line.strip() and not line.lstrip().startswith("#"):
            has_ended = True
    options = tuple(_options(words, faults))
    return Header(options, tuple(faults), tuple(unread))


def _read_line(line: str, number: int, words: list[Word], faults: list[Fault]) -> None:
    try:
        words += _words(line, number)
    except ValueError as error:
        place = Word(line, number, 0)
        faults.append(Fault(f"{error}", "close the quote: sbatch refuses the script", place))


def _words(line: str, number: int) -> Iterator[Word]:
    """Yield the words of a line behind `#SBATCH`; ValueError for a quote that is not closed."""
    place = len(MAGIC)
    while True:
        place += len(line) - place - len(line[place:].lstrip())
        text, end = _word(line, place)
        if text is None:
            return
        yield Word(text, number, place)
        place = end


def _word(line: str, start: int) -> tuple[str | None, int]:
    """Return the word that begins here, None at a comment or the line's end; and its end."""
    text: str | None = None
    place, quote = start, ""
    while place < len(line) and (quote or not line[place].isspace()):
        char = line[place]
        if char == "\\" and place + 1 < len(line):
            text, place = (text or "") + line[place + 1], place + 2
            continue
        if quote and char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote, text = char, text or ""
        elif not quote and char == "#":
            break
        else:
            text = (text or "") + char
        place += 1
    if quote:
        raise ValueError(f"a quote ({quote}) is not closed")
    return text, place


def _options(words: list[Word], faults: list[Fault]) -> Iterator[Given]:
    """Yield what getopt_long(3) makes of the words."""
    rest = iter(words)
    before = len(faults)
    for word in rest:
        if len(faults) > before:
            return  # the next word may be the value of an unknown option
        if word.text.lower() in ("hetjob", "packjob"):
            faults.append(
                Fault(
                    f"'{word.text}' begins the second part of a heterogeneous job",
                    "write a script for each part: a run has nodes of one kind",
                    word,
                )
            )
            return
        if word.text.startswith("--") and len(word.text) > 2:
            yield from _long(word, rest, faults)
        elif word.text.startswith("-") and len(word.text) > 1:
            yield from _letters(word, rest, faults)
        else:
            hint = "write an option, such as --nodes=2: sbatch refuses the script"
            faults.append(Fault(f"'{word.text}' is no option", hint, word))
            return


def _long(word: Word, rest: Iterator[Word], faults: list[Fault]) -> Iterator[Given]:
    name, equals, value = word.text[2:].partition("=")
    option = _by_name(name)
    if option is None:
        hint = "correct its name: gpuctl knows sbatch's options"
        faults.append(Fault(f"sbatch has no option '--{name}'", hint, word))
    elif equals and option.value == "":
        faults.append(Fault(f"'--{option.name}' takes no value", "remove the value", word))
    elif equals or option.value != "=":
        column = word.column + len(name) + 3 if equals else word.column
        yield Given(option, value, word, Word(value, word.line, column))
    else:
        yield from _with_next(option, word, rest, faults)


def _by_name(name: str) -> Option | None:
    if name in _BY_NAME:
        return _BY_NAME[name]
    matches = {option.name for option in OPTIONS if option.name.startswith(name)}
    return _BY_NAME[matches.pop()] if len(matches) == 1 else None


def _letters(word: Word, rest: Iterator[Word], faults: list[Fault]) -> Iterator[Given]:
    """Yield the options of `-N2`, `-N 2` and `-vQ`."""
    for index, letter in enumerate(word.text[1:], 1):
        option = _BY_LETTER.get(letter)
        if option is None:
            hint = "correct it: gpuctl knows sbatch's options"
            faults.append(Fault(f"sbatch has no option '-{letter}'", hint, word))
            return
        behind = word.text[index + 1 :]
        if option.value == "":
            yield Given(option, "", word, word)
        elif behind or option.value == "?":
            yield Given(option, behind, word, Word(behind, word.line, word.column + index + 1))
            return
        else:
            yield from _with_next(option, word, rest, faults)
            return


def _with_next(
    option: Option, word: Word, rest: Iterator[Word], faults: list[Fault]
) -> Iterator[Given]:
    value = next(rest, None)
    if value is None:
        hint = f"write --{option.name}=VALUE"
        faults.append(Fault(f"'--{option.name}' has no value", hint, word))
    else:
        yield Given(option, value.text, word, value)


def is_batch_script(text: str, file: str) -> bool:
    """Return whether a file is a batch script: by its lines, or by its first line and its name."""
    if re.search(rf"^{MAGIC}", text, re.MULTILINE):
        return True
    return text.startswith("#!") and file.endswith((".sbatch", ".slurm"))
