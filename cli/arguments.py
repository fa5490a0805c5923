"""The arguments and options with names, which the shell completes, that commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import clusters, instance_types, nodes, nodes_of_file, runs
from operations import known

if TYPE_CHECKING:
    from cli.output import Output
    from operations.chosen_target import ChosenTarget
    from operations.known import RunRecord


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The cluster file.")]
ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="The cluster's name.", autocompletion=clusters)
]
NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help="node0, node1, … or bastion.", autocompletion=nodes)
]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The run's id, or the name of its latest.", autocompletion=runs
    ),
]
LatestRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="The run's id, or the name of its latest; by default the newest run.",
        autocompletion=runs,
    ),
]
TypeArgument = Annotated[
    str,
    typer.Argument(metavar="TYPE", help="EC2 instance type.", autocompletion=instance_types),
]
ReplaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--replace",
        metavar="NODE",
        help="Make a new machine of NODE, `all` for every node.",
        autocompletion=nodes_of_file,
    ),
]


def chosen_run(chosen: "ChosenTarget", name: str | None, out: "Output") -> "RunRecord":
    """Return the run of this id or name; without one the newest, and say on stderr which it is.

    If the run is over and only the team's bucket has its journal, this machine has it afterwards.
    """
    if name is None:
        name = known.newest_run(chosen).run_id
        out.complain(f"gpuctl: run {name}, the newest")
    return known.kept_run(chosen, name, watcher=out.progress())
