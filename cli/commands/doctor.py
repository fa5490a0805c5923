"""`gpuctl doctor`: what gpuctl sees of engine, backend, credentials and lab, with remedies."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cli.options import chosen_target, output
from operations import doctor as operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.doctor import Check


def doctor(context: typer.Context) -> None:
    """Check this machine, and show a remedy for each missing part.

    The exit code is 1 when something is missing that commands on the target need: AWS, or with
    --lab the lab.

    $ gpuctl doctor
    $ gpuctl doctor --lab
    """
    out = output(context)
    checks = list(operation.checks(chosen_target(context)))
    out.show([asdict(check) for check in checks], _lines(checks, out))
    if any(check.remedy and check.needed for check in checks):
        raise typer.Exit(1)


def _lines(checks: list["Check"], out: "Output") -> "Iterator[str]":
    rows = []
    for check in checks:
        mark = "ok" if not check.remedy else "!!" if check.needed else "--"
        rows.append((mark, check.name, check.seen))
        if check.remedy:
            rows.append(("", "", check.remedy))
    yield from out.table(("", "CHECK", "FOUND"), rows, drop=())
