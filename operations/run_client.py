"""A client of a run: it follows the run, then does what the run asks for at its end."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from config.catalogue.instance_types import price_usd_h
from config.errors import GpuctlError, Interrupted
from config.event_loop import run_in_loop
from engine.agent.journal.lines import Line, WholeLines
from engine.analysis.metrics.usage import IdleCost, idle_cost
from engine.contract.event import Event
from engine.contract.head_events import GpusIdle
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Output
from engine.record.events import event_json, has_output
from engine.record.journal_copy import evidence_folder
from engine.record.metrics_record import fetch_record
from engine.record.result import RunResult, TableCollector
from engine.record.run_errors import KnownRun, RunGoesOn, RunLost
from engine.session.following import OnEvent
from engine.session.head import ClusterBusy, NotStarted
from engine.session.session import Answer, OnInterrupt
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.files import fetch
from operations.lab_evidence import LabEvidence
from operations.lost_head import head_watch
from operations.run_healing import Healing
from operations.shared_runs import share_ended_run
from operations.teardown import destroy, destroy_if_asked, ending, record_cost, removable
from operations.watcher import Watcher

if TYPE_CHECKING:
    from provision.down import Teardown

__all__ = ["Event", "Line", "OnEvent", "Output", "TableCollector", "WholeLines", "event_json"]


Life = Callable[[OnEvent, OnInterrupt], Coroutine[Any, Any, RunResult]]
"""Follows a run to its end, from its start or from where it is."""

T = TypeVar("T")

_LOGGER = logging.getLogger("gpuctl")


@dataclass(frozen=True)
class EndedRun:
    """A run that is over, and what its client did at its end.

    `teardown` is None if the cluster was not removed. `evidence` is the folder with evidence of
    lost nodes, `outputs` that of the run's outputs; each is None if there is none.
    `earlier_cost_usd` is what its cluster cost, if it was removed before.
    """

    result: RunResult
    teardown: "Teardown | None" = None
    teardown_error: GpuctlError | None = None
    evidence: Path | None = None
    outputs: Path | None = None
    earlier_cost_usd: float | None = None

    @property
    def cost_usd(self) -> float | None:
        """Return what the removed cluster has cost; None if it was not removed, or unknown."""
        return self.earlier_cost_usd if self.teardown is None else self.teardown.cost_usd

    @property
    def exit_code(self) -> int:
        """Return the exit code of the job."""
        return self.result.exit_code

    def check_teardown(self) -> None:
        """Raise the error of the cluster's removal, if it failed: a part of it may still bill."""
        if self.teardown_error is not None:
            raise self.teardown_error


class RunClient:
    """A client of one run: its outputs, and the end of its cluster.

    `on_event` gets the run's events. `on_removed` gets the teardown of a cluster that is removed
    although gpuctl fails; the error is raised then.
    """

    def __init__(
        self,
        chosen: ChosenTarget,
        run: KnownRun,
        inventory: Inventory,
        *,
        on_event: OnEvent,
        on_removed: "Callable[[Teardown], None]",
        watcher: Watcher,
    ) -> None:
        self._chosen, self._run, self._inventory, self._watcher = chosen, run, inventory, watcher
        self._on_event, self._on_removed = on_event, on_removed
        self._answer: Answer | None = None
        self._healing: Healing | None = None
        self.runs = chosen.runs
        self._evidence = evidence_folder(self.runs, run.run_id)
        self._watch_head = head_watch(chosen, inventory, run)
        self._lab = LabEvidence(chosen.lab, inventory, self._evidence) if chosen.lab else None

    def live(
        self, life: Life, on_interrupt: OnInterrupt, healing: Healing | None = None
    ) -> EndedRun:
        """Follow the run while `life` does, and do what it asks for at its end.

        `on_interrupt` says what Ctrl-C means, `healing` makes lost nodes again. Raises Detached
        after the answer `detach`. The caller has to call `share_ended_run` at its own end.
        """

        def answer() -> Answer:
            self._answer = on_interrupt()
            return self._answer

        self._healing = healing
        return self._end(self._execute(self._heal_during(life(self._see, answer))))

    async def _heal_during(self, running: Coroutine[Any, Any, RunResult]) -> RunResult:
        """Follow the run; its nodes may be other machines afterwards."""
        if self._healing is None:
            return await running
        try:
            return await self._healing.during(running)
        finally:
            self._inventory = self._healing.inventory

    def leave(self, start: Coroutine[Any, Any, None]) -> None:
        """Start the run, and leave it alone."""
        self._execute(start)

    def _execute(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` does. If it fails, still remove a cluster that was to be removed."""
        run, inventory = self._run, self._inventory
        try:
            return run_in_loop(work)
        except (ClusterBusy, NotStarted, RunGoesOn):
            raise  # a run still uses the cluster, or this one has changed nothing of it
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self._is_left_alone:
                raise
            try:
                with ending(inventory, run.run_id, self._watcher):
                    if isinstance(
                        error, (RunLost, Interrupted, KeyboardInterrupt)
                    ):  # its job began
                        fetch(run, inventory, self.runs, self._watcher)
                    if run.on_stop == "destroy":
                        # also after an error of gpuctl or a second Ctrl-C: the cluster must not
                        # bill on
                        self._remove_after(error)
            finally:
                # last: a slow bucket must not keep the cluster
                share_ended_run(self._chosen, watcher=self._watcher)
            raise

    def _remove_after(self, error: BaseException) -> None:
        """Remove the cluster of a run that failed with this error of gpuctl, unless it is kept."""
        if isinstance(error, RunLost) and error.saved:
            self._watcher.note(
                f"-- cluster {self._inventory.cluster} is not removed: its nodes have ended, and"
                f" {error.saved} may have what the run left"
            )
            return
        place = (self._chosen, self._run.run_id, self._inventory, self._watcher)
        with removable(*place, is_lost=isinstance(error, RunLost)) as may_remove:
            if may_remove:
                self._watcher.warn(str(error) or "interrupted")
                self._on_removed(destroy(*place))

    @property
    def _is_left_alone(self) -> bool:
        """Return whether Ctrl-C ends this client alone: nobody has asked the run to stop."""
        is_of_another = not isinstance(self._run, LaunchPlan)
        return self._answer == "detach" or (is_of_another and self._answer is None)

    def _end(self, result: RunResult) -> EndedRun:
        """Fetch outputs, remove the cluster if the run says so; return all that happened."""
        run, inventory, watcher = self._run, self._inventory, self._watcher
        with ending(inventory, run.run_id, watcher):
            try:
                _keep_metrics(run.run_id, inventory, self.runs, watcher)
                outputs = fetch(run, inventory, self.runs, watcher)
                if self._lab is not None:
                    self._lab.wait()
            finally:
                # Before the result is printed: printing fails if the reader has gone.
                gone = destroy_if_asked(self._chosen, run, inventory, watcher)
        record_cost(gone, self.runs, run.run_id)
        return EndedRun(
            result,
            teardown=None if isinstance(gone, GpuctlError) else gone,
            teardown_error=gone if isinstance(gone, GpuctlError) else None,
            evidence=self._evidence if self._evidence.exists() else None,
            outputs=outputs,
        )

    def _see(self, event: Event) -> None:
        if not has_output(event):
            _LOGGER.info("run %s", event_json(event))
        self._on_event(event)
        self._watch_head(event)
        if self._lab is not None:
            self._lab.see(event)
        if self._healing is not None:
            self._healing.see(event)


_METRICS_S = 60
"""Seconds to wait for the head: the cluster bills."""


def _keep_metrics(run_id: str, inventory: Inventory, runs: Path, watcher: Watcher) -> None:
    """Fetch the run's metrics from the head. An error is only a warning."""

    async def fetch() -> None:
        async with asyncio.timeout(_METRICS_S):
            await fetch_record(inventory, run_id, runs)

    try:
        run_in_loop(fetch())
    except TimeoutError:
        watcher.warn(f"metrics did not come back: no answer within {_METRICS_S} s")
    except (GpuctlError, OSError) as error:
        watcher.warn(f"metrics did not come back: {error}")
    except KeyboardInterrupt:
        watcher.warn("metrics did not come back: interrupted")


def nodes_usd_h(inventory: Inventory) -> float | None:
    """Return the on-demand price of all nodes for an hour in dollars; None if it is not known."""
    price = node_usd_h(inventory)
    return None if price is None else len(inventory.nodes) * price


def node_usd_h(inventory: Inventory) -> float | None:
    """Return the on-demand price of a node for an hour in dollars; None if it is not known."""
    return price_usd_h(inventory.instance_type)


def idle_cost_of(event: GpusIdle, name: str, inventory: Inventory | None) -> IdleCost | None:
    """Return what the idle GPUs of the node cost; its price is unknown without an inventory."""
    price = None if inventory is None else price_usd_h(inventory.instance_type)
    nodes = () if inventory is None else inventory.nodes
    count = next((node.gpus for node in nodes if node.name == name), len(event.gpus))
    return idle_cost(name, [(gpu, event.seconds) for gpu in event.gpus], count, price)
