"""All machines of a cluster at once: its nodes, and the bastion if there is one."""

import asyncio
from collections.abc import Mapping

from config.errors import GpuctlError, NodeError
from config.folded_names import fold
from nodes.answers import Completed
from nodes.inventory import Inventory, Node
from nodes.ssh import Connections

BASTION = "bastion"
TIMEOUT_S = 60.0

Answers = Mapping[str, Completed | GpuctlError]


def machine_names(inventory: Inventory) -> list[str]:
    """Return the names of the nodes in rank order, then of the bastion, if there is one."""
    names = [node.name for node in inventory.nodes]
    return [*names, BASTION] if inventory.bastion else names


async def on_all(
    connections: Connections, inventory: Inventory, on_node: str, on_bastion: str
) -> Answers:
    """Run a script on all machines at once; return each machine's answer or error by name.

    Each has TIMEOUT_S. The scripts travel as standard input: they are in no argument list.
    """

    async def run(node: Node | None) -> Completed | GpuctlError:
        try:
            if node is None:
                return await connections.run_on_bastion("sh -s", TIMEOUT_S, on_bastion)
            return await connections.run(node, "sh -s", stdin=on_node, timeout=TIMEOUT_S)
        except NodeError as error:
            return error

    machines: list[Node | None] = [*inventory.nodes]
    if inventory.bastion is not None:
        machines.append(None)
    answers = await asyncio.gather(*(run(each) for each in machines))
    return dict(zip(machine_names(inventory), answers, strict=True))


def failures(answers: Answers) -> dict[str, str]:
    """Return the reason of each machine that failed, by name."""
    return {
        name: answer.message if isinstance(answer, GpuctlError) else answer.complaint
        for name, answer in answers.items()
        if isinstance(answer, GpuctlError) or answer.exit_status != 0
    }


def raise_failures(answers: Answers, what: str, hint: str) -> None:
    """Raise NodeError with the machines that failed, and the reason of the first one."""
    if failed := failures(answers):
        raise NodeError(f"{fold(failed)}: {what}: {next(iter(failed.values()))}", hint)
