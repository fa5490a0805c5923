"""A run on the terminal to its end: its events, the removal of its cluster, its result.

Of a run that goes on without a client it shows the name, and the commands that follow.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.render.teardown import show_teardown
from config.command_text import command_text
from config.errors import ExitCode, OutputError
from operations import runs, shared_runs

if TYPE_CHECKING:
    from cli.output import Output
    from cli.render.run import RunView
    from operations.chosen_target import ChosenTarget
    from operations.release import Teardown
    from operations.run_client import EndedRun
    from operations.runs import KnownRun
    from operations.watcher import Watcher


def show_detached(chosen: "ChosenTarget", run: "KnownRun", out: "Output") -> None:
    """Print the run's id, how to come back to it, and what happens if nobody does.

    A team's bucket then has the run, so that a colleague can come back to it.
    """
    words = out.program
    name, cluster = run.run_id, run.cluster
    lines = [
        f"Run {name} goes on on cluster {cluster} without this client.",
        f"  follow it to its end:  {words} attach {name}",
        f"  wait for its end:      {words} wait {name}",
        f"  stop it:               {words} stop {name}",
    ]
    if run.on_stop == "destroy":
        lines += [
            "If no client is attached at its end, the nodes power off a minute later;"
            f" {command_text(f'{words} down {{}}', cluster)} removes the rest."
        ]
        left = runs.unattended_end(run)
        lines.append(f"{left[0].upper()}{left[1:]}.")
        if run.saved:
            lines.append(f"Later {runs.way_to_saved(name, cluster, words)}.")
    elif run.outputs:
        lines.append(f"Its outputs ({', '.join(run.outputs)}) come back with attach.")
    if run.ports:
        lines.append(f"With attach its ports ({', '.join(run.ports)}) are forwarded.")
    document = {"run_id": name, "cluster": cluster, "on_stop": run.on_stop}
    try:
        out.show(document | {"outputs": run.outputs}, lines)
    except BrokenPipeError as error:
        raise runs.RunGoesOn(run, runs.NOBODY_READS) from error
    except OutputError as error:
        raise runs.RunGoesOn(run, error.message) from error
    finally:
        shared_runs.share_ended_run(chosen, watcher=out.progress())


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
