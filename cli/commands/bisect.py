"""`gpuctl bisect CLUSTER`: which node, or which pair of nodes, holds the fleet back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output
from config.errors import InputError, Interrupted, RunError

if TYPE_CHECKING:
    from pathlib import Path

    from cli.output import Output
    from engine.analysis.bisect.report import Bisect
    from engine.analysis.bisect.rounds import Round
    from engine.analysis.bisect.verdict import Measurement
    from nodes.inventory import Inventory

LARGEST = "256M"
"""The largest message, unless somebody says another."""

FOUND = 1
"""The exit code if a node or a pair is slow."""


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
    from engine.analysis.bisect.rounds import MOST_NODES
    from provision.records.record import load_inventory

    here, out = chosen_target(context), output(context)
    largest = _bytes(size)
    target = here.cluster_target(cluster)
    there = load_inventory(cluster, target)
    count = len(there.nodes)
    if not 2 <= count <= MOST_NODES:
        raise InputError(
            f"cluster {cluster} has {count} nodes, bisect compares 2 to {MOST_NODES}",
            "measure it with `gpuctl run stacks/nccl-tests.yaml`",
        )
    _announce(there, out)
    out.confirm(f"Measure cluster {cluster}? No other run can use it meanwhile", yes)
    found = Runs(there, target.runs, largest, out).measure()
    _show(found, target.runs, out)
    if found.suspects:
        raise typer.Exit(FOUND)


def _bytes(size: str) -> int:
    import re

    from config.run.run_file import FORMS
    from config.run.size import SIZE, byte_count

    if not re.fullmatch(SIZE, size):
        raise InputError(f"--size is '{size}'", f"allowed are {FORMS[SIZE]}")
    return byte_count(size)


def _announce(there: "Inventory", out: "Output") -> None:
    """Print the plan: its runs and their estimated time."""
    from config.quantities import elapsed
    from engine.analysis.bisect.rounds import first_rounds, last_round

    count, gpus = len(there.nodes), there.nodes[0].gpus
    rounds = (*first_rounds(count, gpus), last_round(count, (0,), ((0, 1),)))
    out.say(
        f"Bisect of {there.cluster}, {count} nodes: {len(rounds)} runs,"
        f" about {elapsed(sum(round_.seconds for round_ in rounds))}"
    )
    for number, one in enumerate(rounds, 1):
        out.say(f"  run {number}: {_title(one, count)}, about {elapsed(one.seconds)}")


def _title(a_round: "Round", count: int) -> str:
    if a_round.title == "alone":
        return f"{count} nodes, each alone"
    if a_round.title == "rings":
        return "a ring of all nodes, and one without the slowest"
    steps = "1 step" if len(a_round.steps) == 1 else f"{len(a_round.steps)} steps"
    return f"{len(a_round.trials) // 2} pairs both ways, in {steps}"


class Runs:
    """One bisect of a cluster, from its first run to its last."""

    def __init__(self, there: "Inventory", runs: "Path", largest: int, out: "Output") -> None:
        self._there, self._runs, self._largest, self._out = there, runs, largest, out
        self._measured: list[Measurement] = []
        self._ids: list[str] = []
        self._names: tuple[str, ...] = ()

    def measure(self) -> "Bisect":
        """Execute the plan, and return what it found."""
        from datetime import UTC, datetime

        from engine.analysis.bisect.report import Bisect, verdict_line
        from engine.analysis.bisect.rounds import count_runs
        from engine.analysis.bisect.verdict import confirmed, next_round

        began, count = datetime.now(UTC), len(self._there.nodes)
        gpus = self._there.nodes[0].gpus
        planned = count_runs(count, gpus)
        while a_round := next_round(count, gpus, len(self._ids), self._measured):
            self._run(a_round, planned)
        found = confirmed(self._measured)
        return Bisect(
            cluster=self._there.cluster,
            began=began,
            nodes=self._names,
            planned_runs=planned,
            runs=tuple(self._ids),
            measured=tuple(self._measured),
            suspects=found,
            verdict=verdict_line(self._names, found, self._measured),
        )

    def _run(self, a_round: "Round", planned: int) -> None:
        """Execute the round as one run, and keep its measurements."""
        import asyncio

        from engine.analysis.bisect.launch import RoundReader, run_file
        from engine.plan.launch_plan import launch_plan, new_run_id
        from engine.session.session import run

        count = len(self._there.nodes)
        wanted = run_file(a_round, count, self._largest)
        plan = launch_plan(wanted, self._there, new_run_id(wanted.name))
        self._names = tuple(node.name for node in plan.nodes)
        self._ids.append(plan.run_id)
        number = len(self._ids)
        title = _title(a_round, count)
        self._out.note(f"-- run {number} of {planned}: {title} ({plan.run_id})")
        reader = RoundReader(a_round)
        result = asyncio.run(run(plan, self._there, self._runs, reader.see))
        if result.status == "stopped":
            raise Interrupted(f"bisect of {plan.cluster} was stopped in {plan.run_id}", "")
        if result.status != "done":
            raise RunError(
                f"run {plan.run_id} of the bisect failed: {result.reason}",
                f"`gpuctl logs {plan.run_id}` shows its output",
            )
        for text in result.warnings:
            self._out.warn(text)
        self._keep(reader.measured, plan.run_id)

    def _keep(self, measured: "Sequence[Measurement]", run_id: str) -> None:
        """Keep the round's measurements; RunError if every trial of it failed."""
        from engine.analysis.bisect.report import failure_lines

        self._measured += measured
        failed = [measurement for measurement in measured if measurement.error]
        if len(failed) == len(measured):
            why = failed[0].error if failed else "it has no output"
            raise RunError(
                f"no measurement of run {run_id} succeeded: {why}",
                f"`gpuctl logs {run_id}` shows its output",
            )
        for text in failure_lines(self._names, measured):
            self._out.warn(text)


def _show(found: "Bisect", runs: "Path", out: "Output") -> None:
    """Print the verdict, where the measurements are kept, and how to draw them."""
    from engine.analysis.bisect.report import keep, verdict_lines

    path = keep(found, runs)
    lines = [
        *verdict_lines(found),
        f"All {len(found.measured)} measurements: {path}",
        f"Their heat map: gpuctl report {found.runs[-1]}",
    ]
    out.show(found.model_dump(mode="json") | {"path": str(path)}, lines)
