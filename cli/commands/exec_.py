"""`gpuctl exec CLUSTER -- CMD`: one command on every node, equal answers folded."""

from typing import Annotated

import typer

from cli import openssh
from cli.arguments import ClusterArgument
from cli.complete import nodes
from cli.options import chosen_target, output
from cli.render import exec_output
from config.errors import InputError
from operations import node_commands


def exec_(
    context: typer.Context,
    cluster: ClusterArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command and its arguments, as they are."),
    ],
    node: Annotated[
        str,
        typer.Option(
            "--node", metavar="NODES", help="node3, node[0-3,5], or all.", autocompletion=nodes
        ),
    ] = "all",
    terminal: Annotated[
        bool,
        typer.Option("--tty", "-t", "-it", help="In a terminal on one node: node0 without --node."),
    ] = False,
) -> None:
    """Run a command on every node of a cluster.

    The exit code is the largest of the nodes', 255 for a node out of reach. Options of gpuctl are
    written before the command; behind its first word, or behind `--`, all is the command's.

    $ gpuctl exec demo -- nvidia-smi -L
    $ gpuctl exec demo -- 'uptime | cut -d, -f1'
    $ gpuctl exec -it demo --node node1 -- python3
    """
    chosen, out = chosen_target(context), output(context)
    line = exec_output.shell_line(command)
    if terminal and out.as_json:
        raise InputError("what a terminal shows has no JSON form", "leave `-t` or `--json` out")
    if terminal:
        openssh.become(node_commands.terminal_command(chosen, cluster, line, node))
    answers = node_commands.run_on_nodes(chosen, cluster, line, node)
    raise typer.Exit(exec_output.show(answers, out))
