"""The command line's part of a manifest: values of placeholders, and a folder of runtimes."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.diagnostic import Diagnostic
from config.errors import InputError
from config.yaml.hints import quote

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Substitutions:
    """`placeholders`: each NAME=VALUE of `--set`; `runtimes`: the folder of `--runtimes`."""

    placeholders: tuple[str, ...] = ()
    runtimes: Path | None = None

    def values(self) -> Mapping[str, str]:
        """Return the placeholders' values by name; of a name the last one counts.

        Raises InputError for one that is not NAME=VALUE.
        """
        values = {}
        for text in self.placeholders:
            name, equals, value = text.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise InputError(f"--set is {quote(text)}", "write NAME=VALUE")
            values[name] = value
        return values


NO_SUBSTITUTIONS = Substitutions()


def unused_values(given: Substitutions, names: Collection[str]) -> list[Diagnostic]:
    """Return a warning for each `--set` of a name that is no placeholder."""
    diagnostics = []
    for line, name in enumerate(given.values(), 1):
        if name not in names:
            message = f"--set {quote(name)} fills in nothing: there is no ${{{name}}}"
            diagnostics.append(Diagnostic("--set", line, 1, "W208", message, "check the name"))
    return diagnostics
