"""`gpuctl exec CLUSTER -- CMD`: one command on every node, equal answers folded."""

import asyncio
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from cli.down import ClusterArgument
from cli.plan import JsonOption
from cli.session import session

if TYPE_CHECKING:
    from config.errors import GpuctlError
    from nodes.inventory import Inventory
    from nodes.ssh import Completed


def exec_(
    context: typer.Context,
    cluster: ClusterArgument,
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    as_json: JsonOption = False,
) -> None:
    """Run a command on every node; the exit code is the largest, 255 for a node out of reach."""
    from provision.record import load_inventory

    target = session(context).cluster_target(cluster)
    inventory = load_inventory(cluster, target)
    # one word is a shell line (`exec c -- 'a | b'`), several are an argument list
    line = command[0] if len(command) == 1 else shlex.join(command)
    answers = asyncio.run(_ask(inventory, line))
    raise typer.Exit(_show(inventory, answers, as_json))


async def _ask(inventory: "Inventory", line: str) -> "dict[int, Completed | GpuctlError]":
    from nodes.fanout import on_each
    from nodes.ssh import connect

    async with connect(inventory) as nodes:
        return await on_each(inventory.nodes, lambda node: nodes.run(node, line))


def _show(
    inventory: "Inventory", answers: "dict[int, Completed | GpuctlError]", as_json: bool
) -> int:
    from cli.terminal import say, say_json
    from nodes.fanout import fold_answers
    from nodes.ssh import Completed

    if as_json:
        say_json(
            {
                node.name: vars(a) if isinstance(a, Completed) else {"error": str(a)}
                for node in inventory.nodes
                for a in [answers[node.rank]]
            }
        )
    said = {rank: _said(answer) for rank, answer in answers.items()}
    for group in fold_answers(inventory.nodes, said) if not as_json else ():
        text, code = group.answer
        say(f"--- {group.names}" + (f": exit code {code}" if code else ""))
        if text:
            say(text)
    return max(code for _, code in said.values())


def _said(answer: "Completed | GpuctlError") -> tuple[str, int]:
    """What is shown of an answer, and its exit code: 255 for a node out of reach, as ssh."""
    from nodes.ssh import Completed

    if isinstance(answer, Completed):
        return (answer.stdout + answer.stderr).rstrip("\n"), answer.exit_status
    return str(answer), 255
