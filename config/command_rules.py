"""Rules about the commands of a file: bash must be able to read each entry by itself."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from config.bash_syntax import syntax_fault
from config.mistakes import Mistake, Path, path_text

# An odd number of backslashes at the end, of a line that is no comment.
_CONTINUED = re.compile(r"^(?!\s*#).*(?<!\\)(?:\\\\)*\\\s*\Z", re.MULTILINE)
_ONE_ENTRY = "write both as one entry (`- |` for several lines), or remove the \\"


def command_mistakes(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistake of each command of a run or cluster file that is not bash."""
    yield from entry_mistakes(_get(data.get("setup"), "commands"), ("setup", "commands"))
    for at, commands in job_commands(data):
        yield from entry_mistakes(commands, at)
    yield from entry_mistakes(_get(data.get("ready"), "command"), ("ready", "command"))
    notify = data.get("notify")
    for index, target in enumerate(notify if isinstance(notify, tuple) else ()):
        yield from entry_mistakes(_get(target, "command"), ("notify", index, "command"))


def job_commands(data: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of `commands`, of the run first and then of each role."""
    yield ("commands",), data.get("commands")
    roles = data.get("roles")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        yield ("roles", name, "commands"), _get(role, "commands")


def entry_mistakes(value: Any, at: Path) -> Iterator[Mistake]:
    """Yield the mistake of a text, or of each text of a list, that bash cannot read."""
    if isinstance(value, tuple):
        for index, entry in enumerate(value):
            yield from entry_mistakes(entry, (*at, index))
            if value[index + 1 :] and isinstance(entry, str) and _CONTINUED.search(entry):
                message = f"'{path_text((*at, index))}' ends with \\, but the next entry is apart"
                yield Mistake("E248", message, _ONE_ENTRY, (*at, index), row=_last_row(entry))
    fault = syntax_fault(value) if isinstance(value, str) else None
    if fault is not None:
        message = f"'{path_text(at)}' {fault.what}"
        yield Mistake("E248", message, fault.hint, at, row=fault.row)


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _last_row(text: str) -> int:
    return len(text.rstrip().splitlines())
