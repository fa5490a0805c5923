"""`gpuctl bisect CLUSTER`: which node, or which pair of nodes, holds the fleet back."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output
from config import duration
from config.errors import ExitCode, InputError
from config.quantities import elapsed
from config.run import run_file
from operations import bisect as operation

if TYPE_CHECKING:
    from cli.output import Output

LARGEST = "256M"
"""The largest message, unless somebody says another."""


def bisect(
    context: typer.Context,
    cluster: ClusterArgument,
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="The largest message: 64K, 256M, 1G.")
    ] = LARGEST,
    yes: YesOption = False,
) -> None:
    """Find the node, or the pair of nodes, that holds the fleet back.

    It measures each node alone, then every pair, then rings, in a number of runs that it shows
    before. The exit code is 0 if no node is slow, 1 if one is, 125 if gpuctl itself failed.

    $ gpuctl bisect demo
    $ gpuctl bisect demo --yes --json
    """
    chosen, out = chosen_target(context), output(context)
    largest = _bytes(size)
    plan = operation.plan_bisect(chosen, cluster)
    _announce(plan, out)
    out.confirm(f"Measure cluster {cluster}? No other run can use it meanwhile", yes)
    with out.progress() as view:
        result, path = operation.measure(plan, largest=largest, watcher=view)
    _show(result, path, out)
    if result.suspects:
        raise typer.Exit(ExitCode.FAILED)


def _bytes(size: str) -> int:
    if not re.fullmatch(duration.SIZE, size):
        allowed = run_file.FORMS[duration.SIZE]
        raise InputError(f"--size is '{size}'", f"allowed are {allowed}")
    return duration.byte_count(size)


def _announce(plan: "operation.BisectPlan", out: "Output") -> None:
    """Print the plan: its runs and their estimated time."""
    count = len(plan.inventory.nodes)
    out.say(
        f"Bisect of {plan.inventory.cluster}, {count} nodes: {len(plan.rounds)} runs,"
        f" about {elapsed(plan.seconds)}"
    )
    for number, a_round in enumerate(plan.rounds, 1):
        title = operation.round_title(a_round, count)
        out.say(f"  run {number}: {title}, about {elapsed(a_round.seconds)}")


def _show(result: "operation.Bisect", path: Path, out: "Output") -> None:
    """Print the verdict, where the measurements are kept, and how to draw them."""
    lines = [
        *operation.verdict_lines(result),
        f"All {len(result.measured)} measurements: {path}",
        f"Their heat map: gpuctl report {result.runs[-1]}",
    ]
    out.show(result.model_dump(mode="json") | {"path": str(path)}, lines)
