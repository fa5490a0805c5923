"""A bisect of a cluster: which node, or which pair of nodes, holds the fleet back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from config.command_text import command_text
from config.errors import InputError, Interrupted, RunError
from config.event_loop import run_in_loop
from config.quantities import counted
from engine.analysis.bisect.launch import RoundReader, run_file
from engine.analysis.bisect.report import Bisect, failure_lines, keep, verdict_line, verdict_lines
from engine.analysis.bisect.rounds import (
    MOST_NODES,
    Round,
    count_runs,
    first_rounds,
    last_round,
)
from engine.analysis.bisect.verdict import Measurement, confirmed, next_round
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.session.session import run
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher

__all__ = ["Bisect", "verdict_lines"]

LARGEST = 256 << 20
"""The largest message in bytes, unless a caller names another."""


@dataclass(frozen=True)
class BisectPlan:
    """The runs of a bisect as far as they are known before it: later ones depend on results."""

    inventory: Inventory
    rounds: tuple[Round, ...]
    runs: Path

    @property
    def seconds(self) -> float:
        """Return the estimated time of all runs."""
        return sum(round_.seconds for round_ in self.rounds)


def plan_bisect(chosen: ChosenTarget, cluster: str) -> BisectPlan:
    """Return the runs of a bisect of the cluster; InputError if it has too few or many nodes."""
    store = chosen.cluster_store(cluster)
    inventory = store.inventory(cluster)
    count, gpus = len(inventory.nodes), inventory.nodes[0].gpus
    if not 2 <= count <= MOST_NODES:
        raise InputError(
            f"cluster {cluster} has {count} nodes, bisect compares 2 to {MOST_NODES}",
            "measure it with `gpuctl run stacks/nccl-tests.yaml`",
        )
    rounds = (*first_rounds(count, gpus), last_round(count, (0,), ((0, 1),)))
    return BisectPlan(inventory, rounds, chosen.runs)


def measure(
    plan: BisectPlan, *, largest: int = LARGEST, watcher: Watcher = LoggingWatcher()
) -> tuple[Bisect, Path]:
    """Execute the plan with messages up to `largest` bytes; return what it found, and its file.

    No other run can use the cluster meanwhile.
    """
    bisect = measure_nodes(plan.inventory, plan.runs, largest, watcher)
    return bisect, keep(bisect, plan.runs)


def measure_nodes(inventory: Inventory, runs: Path, largest: int, watcher: Watcher) -> Bisect:
    """Compare the nodes with runs, of which the folder `runs` keeps the journals."""
    return _Measuring(inventory, runs, largest, watcher).measure()


def round_title(a_round: Round, count: int) -> str:
    """Return what a round measures on `count` nodes, in words."""
    if a_round.title == "alone":
        return f"{count} nodes, each alone"
    if a_round.title == "rings":
        return "a ring of all nodes, and one without the slowest"
    return f"{len(a_round.trials) // 2} pairs both ways, in {counted(len(a_round.steps), 'step')}"


class _Measuring:
    """One bisect of a cluster, from its first run to its last."""

    def __init__(self, inventory: Inventory, runs: Path, largest: int, watcher: Watcher) -> None:
        self._inventory, self._runs = inventory, runs
        self._largest, self._watcher = largest, watcher
        self._measured: list[Measurement] = []
        self._ids: list[str] = []
        self._names: tuple[str, ...] = ()

    def measure(self) -> Bisect:
        """Execute the plan, and return what it found."""
        began, count = datetime.now(UTC), len(self._inventory.nodes)
        gpus = self._inventory.nodes[0].gpus
        planned = count_runs(count, gpus)
        while a_round := next_round(count, gpus, len(self._ids), self._measured):
            self._run(a_round, planned)
        suspects = confirmed(self._measured)
        return Bisect(
            cluster=self._inventory.cluster,
            began=began,
            nodes=self._names,
            planned_runs=planned,
            runs=tuple(self._ids),
            measured=tuple(self._measured),
            suspects=suspects,
            verdict=verdict_line(self._names, suspects, self._measured),
        )

    def _run(self, a_round: Round, planned: int) -> None:
        """Execute the round as one run, and keep its measurements."""
        count = len(self._inventory.nodes)
        task = run_file(a_round, count, self._largest)
        plan = launch_plan(task, self._inventory, new_run_id(task.name))
        self._names = tuple(node.name for node in plan.nodes)
        self._ids.append(plan.run_id)
        title = round_title(a_round, count)
        self._watcher.note(f"-- run {len(self._ids)} of {planned}: {title} ({plan.run_id})")
        reader = RoundReader(a_round)
        result = run_in_loop(run(plan, self._inventory, self._runs, reader.see))
        if result.status == "stopped":
            raise Interrupted(f"bisect of {plan.cluster} was stopped in {plan.run_id}", "")
        if result.status != "done":
            raise RunError(
                f"run {plan.run_id} of the bisect failed: {result.reason}",
                f"{command_text('gpuctl logs {}', plan.run_id)} shows its output",
            )
        for text in result.warnings:
            self._watcher.warn(text)
        self._keep(reader.measured, plan.run_id)

    def _keep(self, measured: Sequence[Measurement], run_id: str) -> None:
        """Keep the round's measurements; RunError if every trial of it failed."""
        self._measured += measured
        failed = [measurement for measurement in measured if measurement.error]
        if len(failed) == len(measured):
            why = failed[0].error if failed else "it has no output"
            raise RunError(
                f"no measurement of run {run_id} succeeded: {why}",
                f"{command_text('gpuctl logs {}', run_id)} shows its output",
            )
        for text in failure_lines(self._names, measured):
            self._watcher.warn(text)
