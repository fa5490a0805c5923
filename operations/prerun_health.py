"""The short check of a run's nodes, while gpuctl prepares the run."""

import threading

from config.command_text import command_text
from config.errors import GpuctlError, NodeError
from config.event_loop import run_in_loop
from engine.contract.plan import LaunchPlan
from nodes.inventory import Inventory
from nodes.kept_connections import connect
from operations.watcher import Watcher
from provision.health.judge import UNREACHABLE
from provision.health.model import Finding
from provision.setup.node_health import checklist, short_check
from provision.state.store import ClusterStore


class NodeCheck:
    """A check of the run's nodes that has begun; `finish` waits for its end."""

    def __init__(self, plan: LaunchPlan, inventory: Inventory, store: ClusterStore) -> None:
        self._plan, self._inventory, self._store = plan, inventory, store
        self._findings: tuple[Finding, ...] = ()
        self._thread = threading.Thread(target=self._check, daemon=True)
        self._thread.start()

    def finish(self, watcher: Watcher) -> None:
        """Wait for the end, report warnings; raise NodeError if a node is not fit for jobs."""
        self._thread.join()
        grave = [finding for finding in self._findings if finding.is_grave]
        for finding in self._findings:
            if not finding.is_grave:
                watcher.warn(f"{finding.node}: {finding.text}; {finding.remedy}")
        if grave:
            lines = (
                f"{finding.node}: {finding.text} ({finding.severity}: {finding.remedy})"
                for finding in grave
            )
            raise NodeError(
                "\n".join(lines),
                f"{command_text('gpuctl health {}', self._inventory.cluster)}"
                " checks again, --no-health starts the"
                " run all the same",
            )

    def _check(self) -> None:
        try:
            findings = run_in_loop(self._ask())
        except GpuctlError:  # the start of the run gets the same, and explains it
            return
        # Nodes that do not answer are the run's own error, and a run can wait for lost ones.
        self._findings = tuple(finding for finding in findings if finding.rule != UNREACHABLE)

    async def _ask(self) -> tuple[Finding, ...]:
        record = self._store.find(self._inventory.cluster)
        if record is None:  # somebody removes the cluster
            return ()
        names = {node.name for node in self._plan.nodes}
        nodes = [node for node in self._inventory.nodes if node.name in names]
        async with connect(self._inventory) as connections:
            return await short_check(connections, nodes, checklist(record, self._inventory))
