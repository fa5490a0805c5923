"""The run that a command's argument names, by default the newest."""

from typing import TYPE_CHECKING

from operations import known

if TYPE_CHECKING:
    from cli.output import Output
    from operations.chosen_target import ChosenTarget
    from operations.known import RunRecord


def chosen_run(chosen: "ChosenTarget", name: str | None, out: "Output") -> "RunRecord":
    """Return the run of this id or name; without one the newest, and say on stderr which it is.

    If the run is over and only the team's bucket has its journal, this machine has it afterwards.
    """
    if name is None:
        name = known.newest_run(chosen).run_id
        out.complain(f"gpuctl: run {name}, the newest")
    return known.kept_run(chosen, name, watcher=out.progress())
