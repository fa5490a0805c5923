"""The check that the head reaches every node by ssh, as the start of a run requires."""

import shlex
from typing import TYPE_CHECKING

from config.command_text import command_text
from config.errors import NodeError
from config.progress import Progress, Reporter
from nodes.inventory import Inventory

if TYPE_CHECKING:
    from nodes.kept_connections import KeptConnections
    from nodes.ssh import Connections

REACH_PATIENCE_S = 60
"""As long as a run's supervisor tries to reach a node (engine/agent/head/supervisor.py)."""

_AT_ONCE = 16

# Prints a line for each address of standard input: the address, and ssh's last error if it failed.
_SCRIPT = """
export USER=$(id -un)
reach() {
    while ! said=$(ssh -n -o BatchMode=yes -o ConnectTimeout=5 "$USER@$1" true 2>&1); do
        if [ $SECONDS -ge "$PATIENCE" ]; then
            echo "$1 $(echo "${said:-it said nothing}" | tail -n 1)"
            return
        fi
        sleep 1
    done
    echo "$1"
}
export -f reach
xargs -r -n 1 -P "$AT_ONCE" bash -c 'reach "$0"'
"""


async def reach_every_node(
    connections: "Connections | KeptConnections",
    inventory: Inventory,
    report: Reporter,
    patience_s: int = REACH_PATIENCE_S,
) -> None:
    """Wait until the head has reached every other node by ssh.

    Raises NodeError with a line for each node that it has not reached within `patience_s`.
    """
    head, *others = inventory.nodes
    left = {node.private_ip: node for node in others}
    if not left:
        return
    for node in others:
        report(Progress("reach", node.name, "running", f"from {head.name}"))
    settings = (f"PATIENCE={patience_s}", f"AT_ONCE={_AT_ONCE}")
    command = shlex.join(["env", *settings, "bash", "-c", _SCRIPT])
    lines = []
    async for line in connections.lines(head, command, stdin="\n".join(left) + "\n"):
        address, _, complaint = line.partition(" ")
        if address not in left:
            continue
        node = left.pop(address)
        report(Progress("reach", node.name, "failed" if complaint else "done", complaint))
        if complaint:
            lines.append(f"{head.name} cannot reach {node.name} ({address}) by ssh: {complaint}")
    lines += [f"{head.name} did not try to reach {node.name}" for node in left.values()]
    if lines:
        command = "gpuctl ssh {} {} -- ssh ADDRESS true"
        raise NodeError(
            "\n".join(lines),
            f"try {command_text(command, inventory.cluster, head.name)}; the security group"
            " and the image's firewall must let nodes reach each other",
        )
