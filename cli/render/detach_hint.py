"""A run that goes on without a client: what it is called, and the commands that follow."""

from typing import TYPE_CHECKING

from config.errors import OutputError
from operations import runs, shared_runs

if TYPE_CHECKING:
    from cli.output import Output
    from operations.chosen_target import ChosenTarget
    from operations.runs import KnownRun


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
            f" `{words} down {cluster}` removes the rest."
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
