"""`${NAME}` in the variables of a run: the value that NAME has on the node.

No shell reads `env` of a run file. The rules are those of dstack's runner, which has the same for
`env` of its tasks (interpolateVariables in runner/internal/executor/env.go of
dstackai/dstack@9d1d3a38, read 2026-11-26): `$${NAME}` is the text `${NAME}`, and a bare `$` means
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"(\$+)\{([A-Za-z_][A-Za-z0-9_]*)\}")


def add_variables(environment: dict[str, str], variables: Mapping[str, str]) -> None:
    """Add the variables to the node's environment, in order, with references replaced.

    A reference sees the environment and the variables before its own. One to a variable that does
    not exist is empty, together with the colon that joined it to a list of paths.
    """
    for name, value in variables.items():
        environment[name] = _replace(value, environment) if "${" in value else value


def _replace(value: str, environment: Mapping[str, str]) -> str:
    def text(reference: re.Match[str]) -> str:
        dollars, name = reference[1], reference[2]
        kept = "$" * (len(dollars) // 2)
        return kept + (environment.get(name, "") if len(dollars) % 2 else f"{{{name}}}")

    for match in reversed(list(_REFERENCE.finditer(value))):
        begin, end, new = value[: match.start()], value[match.end() :], text(match)
        if not new and begin.endswith(":"):
            begin = begin[:-1]
        elif not new and end.startswith(":"):
            end = end[1:]
        value = begin + new + end
    return value
