"""A rule about the commands of a run: they do not call the launcher that their type calls."""

import re
from collections.abc import Iterator, Mapping

from config.cluster.cluster_rules import Data
from config.command_rules import job_commands
from config.mistakes import Mistake, path_text

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
    for at, commands in job_commands(data):
        for index, entry in enumerate(commands if isinstance(commands, tuple) else ()):
            match = call.search(entry) if isinstance(entry, str) else None
            if match:
                launcher, place = " ".join(match[1].split()), (*at, index)
                yield Mistake(
                    "E249",
                    f"'{path_text(place)}' calls {launcher}, which type {run_type} calls itself",
                    "write only the program that it starts (`python train.py`) and its options as"
                    " fields of the run file, or use `type: task`",
                    place,
                    row=entry.count("\n", 0, match.start(1)) + 1,
                )
