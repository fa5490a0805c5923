"""The variables of the network that a run sets, wherever it sets them.

Not only in `env`: launchers have options (`mpirun -x NAME=VALUE`, Hydra's `-genv NAME VALUE`, Open
MPI's `--mca`), and commands export variables. The commands are read without a shell: a text that
only looks like an assignment (`echo NCCL_DEBUG=WARN`) counts too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from config.run.env import Secret
from config.run.run_file import Mpirun, Run

_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_VALUE = r"""(?:"([^"\n]*)"|'([^'\n]*)'|([^\s;&|)"']*))"""
_ASSIGNED = re.compile(rf"(?<![\w.$/{{-])([A-Z][A-Z0-9]*(?:_\w+)+)=(?!=){_VALUE}")
_BY_OPTION = re.compile(rf"(?:^|\s)-?-g?env\s+([A-Z][A-Z0-9]*(?:_\w+)+)\s+(?!-){_VALUE}")
_BY_PYTHON = re.compile(rf"""environ\[["']([A-Z]\w+)["']\]\s*=\s*{_VALUE}""")
_MCA = re.compile(rf"(?:^|\s)-?-(?:mca|prtemca|pmixmca)\s+((?:btl|oob)_tcp_if_include)\s+{_VALUE}")


@dataclass(frozen=True)
class UserSetting:
    """A variable that the user sets, its text, and where: `env`, `mpirun_args` or `commands`.

    `value` is None for a secret.
    """

    name: str
    value: str | None
    where: str


def user_settings(run: Run) -> tuple[UserSetting, ...]:
    """Return the run's own variables, those of all roles included, each once for each place."""
    return tuple(dict.fromkeys(_settings(run)))


def _settings(run: Run) -> Iterator[UserSetting]:
    for env in (run.env, *(role.env for role in run.roles.values())):
        for name, value in env.items():
            yield UserSetting(name, None if isinstance(value, Secret) else value, "env")
    if isinstance(run, Mpirun):
        yield from _assignments(" ".join(run.mpirun_args), "mpirun_args")
    commands = [*(getattr(run, "commands", None) or ())]
    commands += [text for role in run.roles.values() for text in role.commands or ()]
    for text in commands:
        yield from _assignments(_COMMENT.sub("", text.replace("\\\n", " ")), "commands")


def _assignments(text: str, where: str) -> Iterator[UserSetting]:
    for pattern in (_ASSIGNED, _BY_OPTION, _BY_PYTHON, _MCA):
        for found in pattern.finditer(text):
            name, *values = found.groups()
            if pattern is _MCA:
                name = f"OMPI_MCA_{name}"
            yield UserSetting(name, next((v for v in values if v is not None), ""), where)
