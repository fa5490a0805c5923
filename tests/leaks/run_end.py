"""The end of a run with `on_stop: destroy`: its client removes the cluster, and may be killed.

What a run does on nodes is tested with machines (tests/e2e/test_interrupts.py). Here its nodes do
not boot, so that they answer nobody: the client works as for a head that is lost at the end.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from config.run.run_file import Task
from config.target import Target
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.record.history import History
from engine.record.result import RunResult
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.run_client import RunClient
from operations.watcher import LoggingWatcher

if TYPE_CHECKING:
    from engine.session.following import OnEvent
    from engine.session.session import OnInterrupt


@dataclass(frozen=True)
class Here(ChosenTarget):
    """The target of the point, as commands choose it."""

    point: Target | None = None

    def target(self, region: str | None = None) -> Target:
        """Return the target."""
        del region
        assert self.point is not None
        return self.point

    def remembered(self) -> Target:
        """Return the target, whose folder has the records."""
        return self.target()


def end_run(there: Inventory, target: Target) -> None:
    """Do what `gpuctl run` does when the job on the cluster is done."""
    task = {"type": "task", "name": "job", "nodes": len(there.nodes), "commands": ("true",)}
    run = Task.model_validate({**task, "on_stop": "destroy"})
    plan = launch_plan(run, there, new_run_id("job"))

    async def life(_: "OnEvent", __: "OnInterrupt") -> RunResult:
        result = _done(plan)
        with History(target.runs) as history:
            history.begin(plan)
            history.finish(result)
        return result

    client = RunClient(
        Here(point=target),
        plan,
        there,
        on_event=lambda _: None,
        on_removed=lambda _: None,
        watcher=LoggingWatcher(),
    )
    client.live(life, lambda: "stop").check_teardown()


def _done(plan: LaunchPlan) -> RunResult:
    now = datetime.now(UTC)
    return RunResult(
        run_id=plan.run_id, status="done", exit_code=0, first_failed_rank=None,
        first_failed_node=None, reason="", last_lines=(), started=now, ended=now,
    )  # fmt: skip
