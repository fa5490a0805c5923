"""`gpuctl config`: the settings that count now, and where each comes from."""

from typing import TYPE_CHECKING

import typer

from cli.options import options, output
from config import duration
from config.settings import settings, settings_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from config.settings import Setting


def config(context: typer.Context) -> None:
    """Show the settings that count now, and where each comes from.

    A flag overrides a variable, a variable overrides the profile, and that the rest of the file.

    $ gpuctl config
    $ GPUCTL_PROFILE=work gpuctl config --json
    """
    given, out = options(context), output(context)
    flags = {"region": given.region, "aws_profile": given.profile, "backend": given.backend}
    values = list(settings(flags).values())
    path = settings_file()
    document = {
        "file": str(path) if path.exists() else None,
        "settings": {
            setting.name: {"value": _text(setting), "from": setting.source} for setting in values
        },
    }
    out.show(document, _lines(values, out))
    if not out.as_json:
        out.say(f"File: {path}{'' if path.exists() else ' (it does not exist)'}")


def _lines(values: "list[Setting]", out: "Output") -> "Iterator[str]":
    rows = ((setting.name, _text(setting) or "-", setting.source) for setting in values)
    yield from out.table(("SETTING", "VALUE", "FROM"), rows, drop=())


def _text(setting: "Setting") -> str | None:
    """Return the value as people write it."""
    if setting.value is None:
        return None
    if setting.name == "lifetime":
        return duration.format_duration(setting.value)
    if isinstance(setting.value, tuple):
        return ",".join(setting.value)
    if isinstance(setting.value, bool):
        return str(setting.value).lower()
    return str(setting.value)
