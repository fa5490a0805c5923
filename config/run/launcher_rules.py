"""A rule about the commands of a run: they do not call the launcher that their type calls."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from config.cluster.cluster_rules import Data
from config.mistakes import Mistake, Path, path_text

_LAUNCHERS: Mapping[str, str] = {
    "mpi": r"mpirun|mpiexec(?:\.hydra)?|prterun",
    "torchrun": r"torchrun|python[\d.]*\s+(?:-\w+\s+)*?-m\s+torch\.distributed\.(?:run|launch)",
    "horovod": r"horovodrun",
    "deepspeed": r"deepspeed",
    "ray": r"ray\s+start",
}
"""The launchers that gpuctl calls, by the type of the run, as patterns."""

# The beginning of a shell command; an approximation without a shell parser.
_BEGINS = (
    r"(?:^|[;&|]|(?<!\$)\(|\b(?:then|do|else)\s)\s*"
    r"(?:(?:exec|env|time|nohup|command|uv\s+run)\s+|\w+=\S*\s+)*(?:\S*/)?"
)


def launcher_mistakes(data: Data, run_type: str) -> Iterator[Mistake]:
    """Yield a mistake for each entry of commands that calls the launcher of the type."""
    if run_type not in _LAUNCHERS:
        return
    call = re.compile(rf"{_BEGINS}({_LAUNCHERS[run_type]})(?:\s|$)", re.MULTILINE)
    for at, entry in _entries(data):
        found = call.search(entry)
        if found:
            launcher = " ".join(found[1].split())
            yield Mistake(
                "E249",
                f"'{path_text(at)}' calls {launcher}, which type {run_type} calls itself",
                "write only the program that it starts (`python train.py`) and its options as"
                " fields of the run file, or use `type: task`",
                at,
                row=entry.count("\n", 0, found.start(1)) + 1,
            )


def _entries(data: Data) -> Iterator[tuple[Path, str]]:
    """Yield the commands of the run and of its roles, with their paths."""
    roles = data.get("roles")
    lists: list[tuple[Path, Any]] = [(("commands",), data.get("commands"))]
    for name, role in roles.items() if isinstance(roles, dict) else ():
        if isinstance(role, dict):
            lists.append((("roles", name, "commands"), role.get("commands")))
    for at, commands in lists:
        for index, entry in enumerate(commands if isinstance(commands, tuple) else ()):
            if isinstance(entry, str):
                yield (*at, index), entry
