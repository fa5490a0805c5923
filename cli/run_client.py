"""A client of a run on the terminal: show the run, then do what it asks for at its end."""

from typing import TYPE_CHECKING, Any, TypeVar

from cli.shared_runs import share_ended_run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cli.healing import Healing
    from cli.output import Output
    from engine.contract.event import Event
    from engine.record.result import RunResult
    from engine.record.run_errors import KnownRun
    from engine.session.following import OnEvent
    from engine.session.session import Answer, OnInterrupt
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget

    Life = Callable[[OnEvent, OnInterrupt], Coroutine[Any, Any, RunResult]]


T = TypeVar("T")


class RunClient:
    """A client of one run: its events on the terminal, its outputs, the end of its cluster.

    Events before `since`, in seconds since 1970, are not printed. `folds` prints equal lines of
    several ranks once.
    """

    def __init__(
        self,
        here: "ChosenTarget",
        run: "KnownRun",
        there: "Inventory",
        out: "Output",
        since: float = 0.0,
        *,
        folds: bool = False,
    ) -> None:
        from cli.lab_evidence import LabEvidence
        from cli.lost_head import head_watch
        from cli.render.run import RunView
        from engine.record.journal_copy import evidence_folder

        self._here, self._run, self._there, self._out = here, run, there, out
        self._since = since
        self._answer: Answer | None = None
        self._healing: Healing | None = None
        self._runs = here.cluster_target(there.cluster).runs
        self._view = RunView(run, out, there, folds)
        self._evidence = evidence_folder(self._runs, run.run_id)
        self._watch_head = head_watch(here, there, run)
        self._lab = LabEvidence(here.lab, there, self._evidence) if here.lab else None

    def live(self, life: "Life", asked: "OnInterrupt", healing: "Healing | None" = None) -> int:
        """Show the run while `life` follows it, and do what it asks for at its end.

        `asked` asks what Ctrl-C means, `healing` makes lost nodes again. Return the exit code: the
        run's, or 130 after `detach`.
        """
        from cli.render.detach_hint import show_detached
        from config.errors import Interrupted
        from engine.record.run_errors import Detached

        def answer() -> "Answer":
            self._answer = asked()
            return self._answer

        self._healing = healing
        try:
            result = self._execute(self._heal_during(life(self._see, answer)))
        except Detached:
            show_detached(self._here, self._run, self._out)
            return Interrupted.exit_code
        return self._end(result)

    async def _heal_during(self, running: "Coroutine[Any, Any, RunResult]") -> "RunResult":
        """Follow the run; its nodes may be other machines afterwards."""
        if self._healing is None:
            return await running
        try:
            return await self._healing.during(running)
        finally:
            self._there = self._healing.inventory

    def leave(self, start: "Coroutine[Any, Any, None]") -> int:
        """Start the run, and print how to come back to it; return the exit code."""
        from cli.render.detach_hint import show_detached

        self._execute(start)
        show_detached(self._here, self._run, self._out)
        return 0

    def _execute(self, work: "Coroutine[Any, Any, T]") -> T:
        """Return what `work` does. If it fails, still remove a cluster that was to be removed."""
        import asyncio

        from cli.code import fetch
        from cli.run_end import ending
        from config.errors import Interrupted
        from engine.record.run_errors import RunGoesOn, RunLost
        from engine.session.head import ClusterBusy, NotStarted

        run, there, out = self._run, self._there, self._out
        try:
            return asyncio.run(work)
        except (ClusterBusy, NotStarted, RunGoesOn):
            raise  # a run still uses the cluster, or this one has changed nothing of it
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self._is_left_alone:
                raise
            try:
                with ending(there, run.run_id, out):
                    if isinstance(
                        error, (RunLost, Interrupted, KeyboardInterrupt)
                    ):  # its job began
                        fetch(run, there, self._runs, out)
                    if run.on_stop == "destroy":
                        # also after an error of gpuctl or a second Ctrl-C: the cluster must not
                        # bill on
                        self._remove_after(error)
            finally:
                share_ended_run(self._here, out)  # last: a slow bucket must not keep the cluster
            raise

    def _remove_after(self, error: BaseException) -> None:
        """Remove the cluster of a run that failed with this error of gpuctl, unless it is kept."""
        from cli.run_end import destroy, removable, report_teardown
        from engine.record.run_errors import RunLost

        if isinstance(error, RunLost) and error.saved:
            self._out.note(
                f"-- cluster {self._there.cluster} is not removed: its nodes have ended, and"
                f" {error.saved} may have what the run left"
            )
            return
        place = (self._here, self._run.run_id, self._there, self._out)
        with removable(*place, is_lost=isinstance(error, RunLost)) as may_remove:
            if may_remove:
                self._out.warn(str(error) or "interrupted")
                report_teardown(destroy(*place), self._out)

    @property
    def _is_left_alone(self) -> bool:
        """Return whether Ctrl-C ends this client alone: nobody has asked the run to stop."""
        from engine.contract.plan import LaunchPlan

        is_of_another = not isinstance(self._run, LaunchPlan)
        return self._answer == "detach" or (is_of_another and self._answer is None)

    def _end(self, result: "RunResult") -> int:
        """Fetch outputs, remove the cluster if the run says so, and print the result."""
        from cli.code import fetch
        from cli.kept_metrics import keep_metrics
        from cli.run_end import destroy_if_asked, ending, record_cost, report_removal

        run, out = self._run, self._out
        with ending(self._there, run.run_id, out):
            try:
                keep_metrics(run.run_id, self._there, self._runs, out)
                outputs = fetch(run, self._there, self._runs, out)
                if self._lab is not None:
                    self._lab.wait()
            finally:
                # Before the result is printed: printing fails if the reader has gone.
                gone = destroy_if_asked(self._here, run, self._there, out)
        record_cost(gone, self._runs, run.run_id)
        evidence = self._evidence if self._evidence.exists() else None
        try:
            self._view.end(result, evidence)
            cost = report_removal(gone, out)
            if out.as_json:
                self._view.end_json(result, cost, evidence, outputs)
        finally:
            share_ended_run(self._here, out)  # last: a slow bucket delays nothing
        return result.exit_code

    def _see(self, event: "Event") -> None:
        if event.time < self._since:
            self._view.skip(event)
        else:
            self._view.event(event)
        self._watch_head(event)
        if self._lab is not None:
            self._lab.see(event)
        if self._healing is not None:
            self._healing.see(event)
