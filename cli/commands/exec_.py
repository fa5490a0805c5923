"""`gpuctl exec CLUSTER -- CMD`: one command on every node, equal answers folded."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from cli.render import exec_output
from operations import node_commands


def exec_(
    context: typer.Context,
    cluster: ClusterArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command and its arguments, as they are."),
    ],
) -> None:
    """Run a command on every node of a cluster.

    The exit code is the largest of the nodes', 255 for a node out of reach. Options of gpuctl are
    written before the command; behind its first word, or behind `--`, all is the command's.

    $ gpuctl exec demo -- nvidia-smi -L
    $ gpuctl exec demo -- 'uptime | cut -d, -f1'
    """
    chosen, out = chosen_target(context), output(context)
    answers = node_commands.run_on_all_nodes(chosen, cluster, exec_output.shell_line(command))
    raise typer.Exit(exec_output.show(answers, out))
