"""Slurm's short forms: lists of nodes, counts of tasks, patterns of file names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping

_PATTERN = re.compile(r"%(%|[0-9]*[A-Za-z])")
_NUMERIC = "AajJnrst"


def split_list(text: str) -> list[str]:
    """Return the entries of a list that commas separate, outside of brackets."""
    entries, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            entries.append(text[start:place])
            start = place + 1
    return [entry.strip() for entry in (*entries, text[start:]) if entry.strip()]


def expand(text: str) -> list[str]:
    """Return the names of `tux[1-3,05],other`: tux1, tux2, tux3, tux05, other."""
    return [name for entry in split_list(text) for name in _expand_entry(entry)]


def _expand_entry(entry: str) -> list[str]:
    begin, bracket, rest = entry.partition("[")
    if not bracket:
        return [entry]
    inner, _, end = rest.partition("]")
    numbers: list[str] = []
    for part in inner.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            numbers += (f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1))
        else:
            numbers.append(part)
    return [f"{begin}{number}{tail}" for number in numbers for tail in _expand_entry(end)]


def repeat_counts(counts: Iterable[int]) -> str:
    """Return `2(x3),1` for 2, 2, 2, 1, as SLURM_TASKS_PER_NODE has it."""
    groups = ((count, len(list(same))) for count, same in itertools.groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else f"{count}" for count, times in groups)


def expand_counts(text: str) -> list[int]:
    """Return the counts of `2(x3),1`."""
    counts: list[int] = []
    for entry in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", entry)
        if match:
            counts += [int(match[1])] * int(match[2] or 1)
    return counts


def file_name(pattern: str, values: Mapping[str, str]) -> str:
    """Return the pattern with its symbols replaced; `values` are theirs by letter.

    A backslash switches symbols off; a number pads numbers with zeros, up to 10 digits (sbatch(1),
    FILENAME PATTERN). A symbol without a value is empty.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def replace(match: re.Match[str]) -> str:
        symbol = match[1]
        if symbol == "%":
            return "%"
        letter, width = symbol[-1], min(int(symbol[:-1] or 0), 10)
        value = values.get(letter, "")
        return value.zfill(width) if letter in _NUMERIC and value.isdecimal() else value

    return _PATTERN.sub(replace, pattern)


def environment_values(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a pattern's symbols that are the same for a whole job."""
    job = environment.get("SLURM_JOB_ID", "")
    array = environment.get("SLURM_ARRAY_TASK_ID", "")
    return {
        "A": environment.get("SLURM_ARRAY_JOB_ID", job),
        "a": array or "4294967294",  # NO_VAL, which Slurm writes for a job that is no array
        "b": str(int(array) % 10) if array.isdecimal() else "",
        "J": job,
        "j": job,
        "N": environment.get("SLURMD_NODENAME", ""),
        "n": environment.get("SLURM_NODEID", "0"),
        "r": environment.get("SLURM_RESTART_COUNT", "0"),
        "s": "4294967291",  # SLURM_BATCH_SCRIPT
        "t": "0",
        "u": environment.get("USER", "root"),
        "x": environment.get("SLURM_JOB_NAME", ""),
    }
