"""The short check of a run's nodes, while gpuctl prepares the run."""

import asyncio
import threading
from typing import TYPE_CHECKING

from config.errors import GpuctlError, NodeError
from nodes.kept_connections import connect
from provision.health.judge import UNREACHABLE
from provision.records.record import read
from provision.setup.node_health import short_check

if TYPE_CHECKING:
    from cli.output import Output
    from config.target import Target
    from engine.contract.plan import LaunchPlan
    from nodes.inventory import Inventory
    from provision.health.model import Finding


class NodeCheck:
    """A check of the run's nodes that has begun; `finish` waits for its end."""

    def __init__(self, plan: "LaunchPlan", there: "Inventory", target: "Target") -> None:
        self._plan, self._there, self._target = plan, there, target
        self._found: tuple[Finding, ...] = ()
        self._thread = threading.Thread(target=self._check, daemon=True)
        self._thread.start()

    def finish(self, out: "Output") -> None:
        """Wait for the end, print warnings; raise NodeError if a node is not fit for jobs."""
        self._thread.join()
        grave = [one for one in self._found if one.is_grave]
        for finding in self._found:
            if not finding.is_grave:
                out.warn(f"{finding.node}: {finding.text}; {finding.remedy}")
        if grave:
            lines = (f"{one.node}: {one.text} ({one.severity}: {one.remedy})" for one in grave)
            raise NodeError(
                "\n".join(lines),
                f"`gpuctl health {self._there.cluster}` checks again, --no-health starts the run"
                " all the same",
            )

    def _check(self) -> None:
        try:
            found = asyncio.run(self._ask())
        except GpuctlError:  # the start of the run gets the same, and explains it
            return
        # Nodes that do not answer are the run's own error, and a run can wait for lost ones.
        self._found = tuple(finding for finding in found if finding.rule != UNREACHABLE)

    async def _ask(self) -> "tuple[Finding, ...]":
        record = read(self._there.cluster, self._target)
        if record is None:  # somebody removes the cluster
            return ()
        names = {node.name for node in self._plan.nodes}
        nodes = [node for node in self._there.nodes if node.name in names]
        async with connect(self._there) as connections:
            return await short_check(connections, nodes, self._there, record.resolved)
