"""A run on the terminal to its end: its events, the removal of its cluster, its result."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.render.detach_hint import show_detached
from cli.render.teardown import show_teardown
from config.exit_codes import ExitCode
from operations import runs, shared_runs

if TYPE_CHECKING:
    from cli.output import Output
    from cli.render.run import RunView
    from operations.chosen_target import ChosenTarget
    from operations.release import Teardown
    from operations.run_client import EndedRun
    from operations.runs import KnownRun
    from operations.watcher import Watcher


def follow_to_end(
    chosen: "ChosenTarget",
    run: "KnownRun",
    view: "RunView",
    out: "Output",
    follow: "Callable[[Watcher], EndedRun]",
) -> int:
    """Show the run while `follow` follows it; return the exit code: the job's, or 130 for detach.

    A team's bucket has the run afterwards.
    """
    try:
        with out.progress() as progress:
            ended = follow(progress)
    except runs.Detached:
        show_detached(chosen, run, out)
        return ExitCode.INTERRUPTED
    try:
        show_end(ended, view, out)
    finally:
        shared_runs.share_ended_run(
            chosen, watcher=out.progress()
        )  # last: a slow bucket delays nothing
    return ended.exit_code


def show_end(ended: "EndedRun", view: "RunView", out: "Output") -> None:
    """Print the result, then the removal of the cluster; raise the error of the removal."""
    view.end(ended.result, ended.evidence)
    ended.check_teardown()
    if ended.teardown is not None:
        teardown_view(out)(ended.teardown)
    view.next_steps(ended.result, is_removed=ended.teardown is not None)
    if out.as_json:
        view.end_json(ended.result, ended.cost_usd, ended.evidence, ended.outputs)


def teardown_view(out: "Output") -> "Callable[[Teardown], None]":
    """Return what prints the removal of a cluster; as JSON the run's document has its cost."""

    def show(teardown: "Teardown") -> None:
        if not out.as_json:
            show_teardown(teardown, out)

    return show
