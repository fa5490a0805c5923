"""`gpuctl exec CLUSTER -- CMD`: one command on every node, equal answers folded."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from cli.render.exec_output import shell_line

if TYPE_CHECKING:
    from cli.output import Output
    from config.errors import GpuctlError
    from nodes.answers import Completed
    from nodes.inventory import Inventory


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
    import asyncio

    from provision.records.record import load_inventory

    target = chosen_target(context).cluster_target(cluster)
    inventory = load_inventory(cluster, target)
    answers = asyncio.run(_ask(inventory, shell_line(command)))
    raise typer.Exit(_show(inventory, answers, output(context)))


async def _ask(inventory: "Inventory", line: str) -> "dict[int, Completed | GpuctlError]":
    from nodes.kept_connections import connect

    async with connect(inventory) as connections:
        return await connections.run_each(inventory.nodes, line)


def _show(
    inventory: "Inventory", answers: "dict[int, Completed | GpuctlError]", out: "Output"
) -> int:
    from cli.render.exec_output import UNREACHABLE, show
    from nodes.answers import Completed

    by_name = {node.name: answers[node.rank] for node in inventory.nodes}
    if not out.as_json:
        texts = {
            name: _text(answer) if isinstance(answer, Completed) else (str(answer), UNREACHABLE)
            for name, answer in by_name.items()
        }
        return show(texts, out)
    document = {
        name: vars(answer) if isinstance(answer, Completed) else {"error": str(answer)}
        for name, answer in by_name.items()
    }
    out.show(document, ())
    return max(a.exit_status if isinstance(a, Completed) else UNREACHABLE for a in by_name.values())


def _text(answer: "Completed") -> tuple[str, int]:
    from cli.render.exec_output import node_answer

    return node_answer(vars(answer))
