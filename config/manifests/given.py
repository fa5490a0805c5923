"""The command line's part of a manifest: values of placeholders, and a folder of runtimes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.errors import InputError
from config.yaml.hints import quote

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Given:
    """`placeholders`: each NAME=VALUE of `--set`; `runtimes`: the folder of `--runtimes`."""

    placeholders: tuple[str, ...] = ()
    runtimes: Path | None = None

    def values(self) -> Mapping[str, str]:
        """Return the placeholders' values by name; of a name the last one counts.

        Raises InputError for one that is not NAME=VALUE.
        """
        found = {}
        for text in self.placeholders:
            name, equals, value = text.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise InputError(f"--set is {quote(text)}", "write NAME=VALUE")
            found[name] = value
        return found


NOTHING_GIVEN = Given()
