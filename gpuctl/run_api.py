"""A run of the Python API."""

from datetime import timedelta
from pathlib import Path
from typing import Literal

from config.errors import InputError
from gpuctl.calls import Caller, api_call, seconds_of
from operations import (
    debug,
    known,
    past_run,
    results,
    run_client,
    run_log,
    run_queue,
    run_report,
    run_search,
    runs,
    shared_runs,
    usage,
)
from operations.debug import RunProcesses
from operations.known import RunRecord
from operations.results import Comparison, RunResults
from operations.run_client import Event, Line, OnEvent, Output
from operations.run_queue import Queue
from operations.run_report import Report
from operations.runs import EndedRun, RunResult, StoppedRun
from operations.usage import ClusterUsage, NodeSummary

__all__ = ["Run"]


def _ignore(_: Event) -> None:
    """Drop an event."""


class Run:
    """A run on a cluster, or one that is over; what is kept of it outlives its cluster."""

    def __init__(self, run_id: str, caller: Caller) -> None:
        """Name the run; `Cluster.run` and `gpuctl.run` do this."""
        self.run_id = run_id
        self._chosen, self._watcher = caller.target, caller.watcher

    def __repr__(self) -> str:
        return f"<gpuctl.Run {self.run_id}>"

    @api_call
    def record(self) -> RunRecord:
        """Return the run's record: its cluster, status, exit code, reason, times, cost."""
        return run_search.find_run(self._chosen, self.run_id, watcher=self._watcher)

    @api_call
    def wait(self, timeout: str | timedelta | None = None) -> RunRecord:
        """Wait for the run's end; return its record, with `status`, `exit_code` and `reason`.

        A job that fails is a result, not an error. TimeoutError after `timeout` (`8h`); the run
        goes on. No outputs are fetched, and no cluster is removed: `attach` does.
        """
        limit = None if timeout is None else seconds_of(timeout, "timeout")
        record = runs.wait(self._chosen, self.run_id, timeout_s=limit, watcher=self._watcher)
        if not record.is_over:
            raise TimeoutError(f"run {self.run_id} did not end within {timeout}; it goes on")
        return record

    @api_call
    def attach(
        self,
        *,
        on_event: OnEvent = _ignore,
        on_interrupt: Literal["stop", "detach"] = "detach",
        outputs: str | Path | None = None,
    ) -> EndedRun:
        """Follow the run to its end, and do there what `gpuctl run` does; return all of it.

        It forwards the run's ports, makes lost nodes again, fetches the outputs, and removes the
        cluster if the run says so. Outputs come back to `outputs/RUN`, by default to the folder
        that was chosen when the run started here, else to `./outputs/RUN`. `on_event` gets every
        event from the run's beginning. Ctrl-C stops the run or leaves it alone; then Detached is
        raised. A run that is over is replayed.
        """
        record, folder = self.record(), None if outputs is None else Path(outputs)
        if record.is_over:
            first = past_run.first_event(
                self._chosen, record, outputs=folder, watcher=self._watcher
            )
            return past_run.replay(
                self._chosen, record, first, on_event=on_event, watcher=self._watcher
            )
        ended = runs.attach(
            self._chosen,
            runs.find_started(self._chosen, record),
            on_event=on_event,
            on_interrupt=lambda: on_interrupt,
            outputs=folder,
            watcher=self._watcher,
        )
        shared_runs.share_ended_run(self._chosen, watcher=self._watcher)
        ended.check_teardown()
        return ended

    @api_call
    def stop(self, *, grace: str | timedelta | None = None) -> StoppedRun:
        """Stop the run on all its nodes; its cluster is removed if the run says so.

        With `grace` (`5m`) the job gets notice, and is stopped after that time.
        """
        grace_s = 0 if grace is None else seconds_of(grace, "grace")
        return runs.stop(self._chosen, self.run_id, grace_s=grace_s, watcher=self._watcher)

    @api_call
    def logs(self, *, follow: bool = False) -> list[Line]:
        """Return the lines that the run printed, with time, rank and stream.

        They are what this machine has; with `follow` all of them, at the run's end.
        """
        record = known.kept_run(self._chosen, self.run_id, watcher=self._watcher)
        run_log.check_kept(self._chosen, record)
        whole, lines = run_client.WholeLines(), list[Line]()

        def see(event: Event) -> None:
            if isinstance(event, Output):
                lines.extend(whole.feed(event))

        run_log.read_log(self._chosen, record, on_event=see, follow=follow, watcher=self._watcher)
        return [*lines, *whole.rest()]

    @api_call
    def results(self) -> RunResults:
        """Return what the run measured: nccl-tests tables, and findings about the network."""
        return results.results(self._chosen, self._kept())

    @api_call
    def compare(self, before: "Run | str") -> Comparison:
        """Compare the run's tables with those of an earlier run, or of a baseline by its name."""
        if isinstance(before, Run):
            earlier = known.kept_run(self._chosen, before.run_id, watcher=self._watcher)
        else:
            earlier = results.baseline(self._chosen, before)
        return results.compare(self._chosen, earlier, self._kept())

    @api_call
    def keep_baseline(self, name: str) -> None:
        """Keep the run as a baseline, with which later runs are compared."""
        results.keep_baseline(self._chosen, name, self._kept())

    @api_call
    def report(self) -> Report:
        """Return all that is known of the run as one value: tables, timeline, metrics, bisect."""
        return run_report.run_report(self._chosen, self._kept())

    @api_call
    def processes(self) -> RunProcesses:
        """Return what the processes of the run's ranks do now, without pausing them."""
        return debug.examine(self._chosen, self.run_id, watcher=self._watcher).seen

    @api_call
    def usage(self) -> ClusterUsage:
        """Return what the run uses of its nodes now; InputError for a run that is over."""
        watched = usage.find_watched(self._chosen, self.run_id, watcher=self._watcher)
        if not watched.clusters:
            raise InputError(f"run {self.run_id} is over", "past_usage() has what it used")
        return usage.current_usage(watched, watcher=self._watcher)[0]

    @api_call
    def past_usage(self) -> tuple[NodeSummary, ...]:
        """Return what a run that is over used of its nodes: means and peaks."""
        return usage.past_usage(self._chosen, self._kept().run_id)

    @api_call
    def move(self, place: int) -> Queue:
        """Give a run that waits another place in its cluster's queue, from 1."""
        return run_queue.move(self._chosen, self.run_id, place, watcher=self._watcher)

    @api_call
    def drop(self) -> RunResult:
        """Take a run that waits out of the queue; it ends as stopped and never starts."""
        return run_queue.drop(self._chosen, self.run_id, watcher=self._watcher)

    def _kept(self) -> RunRecord:
        return known.kept_run(self._chosen, self.run_id, watcher=self._watcher)
