"""The arguments that commands share."""

from pathlib import Path
from typing import Annotated

import typer

from cli.complete import clusters, nodes, runs

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
