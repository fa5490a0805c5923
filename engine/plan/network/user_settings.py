"""The variables of the network that a run sets, wherever it sets them.

Not only in `env`: launchers have options (`mpirun -x NAME=VALUE`, Hydra's `-genv NAME VALUE`, Open
MPI's `--mca`), and commands, and scripts that they start, export variables. Both are read without
a shell: a text that only looks like an assignment (`echo NCCL_DEBUG=WARN`) counts too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from config.run.env import Secret
from config.run.run_file import Mpirun, Run

_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_VALUE = r"""(?:"([^"\n]*)"|'([^'\n]*)'|([^\s;&|)"']*))"""
_ASSIGNED = re.compile(rf"(?<![\w.$/{{-])([A-Z][A-Z0-9]*(?:_\w+)+)=(?!=){_VALUE}")
_BY_OPTION = re.compile(rf"(?:^|\s)-?-g?env\s+([A-Z][A-Z0-9]*(?:_\w+)+)\s+(?!-){_VALUE}")
_BY_PYTHON = re.compile(
    rf"""environ(?:\[|\.setdefault\()\s*["']([A-Z]\w+)["']\s*(?:\]\s*=(?!=)|,)\s*{_VALUE}"""
)
_MCA = re.compile(rf"(?:^|\s)-?-(?:mca|prtemca|pmixmca)\s+((?:btl|oob)_tcp_if_include)\s+{_VALUE}")


@dataclass(frozen=True)
class UserSetting:
    """A variable that the user sets, its text, and where.

    `value` is None for a secret. `where` is `env`, `mpirun_args`, `commands`, or the line of a
    script: `train.sh:3`.
    """

    name: str
    value: str | None
    where: str


def user_settings(run: Run, scripts: Mapping[str, str]) -> tuple[UserSetting, ...]:
    """Return the run's own variables, those of all roles included, each once for each place.

    `scripts` are texts that the commands start, by path.
    """
    return tuple(dict.fromkeys((*_settings(run), *_of_scripts(scripts))))


def commands_of(run: Run) -> list[str]:
    """Return the commands of the run and of all its roles."""
    commands = [*(getattr(run, "commands", None) or ())]
    return [*commands, *(text for role in run.roles.values() for text in role.commands or ())]


def _of_scripts(scripts: Mapping[str, str]) -> Iterator[UserSetting]:
    for path, text in scripts.items():
        for name, value, line in _assignments(text):
            yield UserSetting(name, value, f"{path}:{line}")


def _settings(run: Run) -> Iterator[UserSetting]:
    for env in (run.env, *(role.env for role in run.roles.values())):
        for name, text in env.items():
            yield UserSetting(name, None if isinstance(text, Secret) else text, "env")
    if isinstance(run, Mpirun):
        for name, value, _ in _assignments(" ".join(run.mpirun_args)):
            yield UserSetting(name, value, "mpirun_args")
    for text in commands_of(run):
        for name, value, _ in _assignments(text):
            yield UserSetting(name, value, "commands")


def _assignments(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield name and value of each variable that the text sets, and the number of its line."""
    text = _COMMENT.sub("", text.replace("\\\n", " \n"))
    for pattern in (_ASSIGNED, _BY_OPTION, _BY_PYTHON, _MCA):
        line, end = 1, 0
        for match in pattern.finditer(text):
            line += text.count("\n", end, match.start(1))
            end = match.start(1)
            name, *values = match.groups()
            if pattern is _MCA:
                name = f"OMPI_MCA_{name}"
            value = next((v for v in values if v is not None), "")
            yield name, value, line
