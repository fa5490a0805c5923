"""`gpuctl exec CLUSTER -- CMD`: one command on every node, equal answers folded."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cli.answers import shell_line
from cli.down import ClusterArgument
from cli.plan import JsonOption
from cli.session import session

if TYPE_CHECKING:
    from config.errors import GpuctlError
    from nodes.answers import Completed
    from nodes.inventory import Inventory


def exec_(
    context: typer.Context,
    cluster: ClusterArgument,
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    as_json: JsonOption = False,
) -> None:
    """Run a command on every node; the exit code is the largest, 255 for a node out of reach."""
    from provision.records.record import load_inventory

    target = session(context).cluster_target(cluster)
    inventory = load_inventory(cluster, target)
    answers = asyncio.run(_ask(inventory, shell_line(command)))
    raise typer.Exit(_show(inventory, answers, as_json))


async def _ask(inventory: "Inventory", line: str) -> "dict[int, Completed | GpuctlError]":
    from nodes.kept import connect

    async with connect(inventory) as connections:
        return await connections.run_each(inventory.nodes, line)


def _show(
    inventory: "Inventory", answers: "dict[int, Completed | GpuctlError]", as_json: bool
) -> int:
    from cli.answers import UNREACHABLE, show
    from cli.terminal import say_json
    from nodes.answers import Completed

    told = {node.name: answers[node.rank] for node in inventory.nodes}
    if not as_json:
        return show(
            {
                name: _said(answer) if isinstance(answer, Completed) else (str(answer), UNREACHABLE)
                for name, answer in told.items()
            }
        )
    say_json(
        {
            name: vars(answer) if isinstance(answer, Completed) else {"error": str(answer)}
            for name, answer in told.items()
        }
    )
    return max(a.exit_status if isinstance(a, Completed) else UNREACHABLE for a in told.values())


def _said(answer: "Completed") -> tuple[str, int]:
    from cli.answers import said

    return said(vars(answer))
