"""Evidence of a lost node that only the lab has: the machine seen from inside, and its console."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from config.errors import GpuctlError
from engine.contract.event import Event
from engine.contract.head_events import NodeLost, NodeUnreachable, RunStarted
from engine.record.journal_copy import write_evidence
from lab.machines.machine_evidence import evidence
from lab.places import Places
from nodes.inventory import Inventory

_WAIT_S = 15.0


class LabEvidence:
    """Writes the lab's evidence of a lost node to `folder`, which also has the head's evidence.

    Only of nodes that are lost from now on: an attached client also sees what happened before it.
    """

    def __init__(self, lab: Places, inventory: Inventory, folder: Path) -> None:
        self._lab, self._inventory, self._folder = lab, inventory, folder
        self._since = time.time()
        self._names: dict[int, str] = {}
        self._threads: list[threading.Thread] = []

    def see(self, event: Event) -> None:
        """Start to write evidence if the event says that a node is lost."""
        if isinstance(event, RunStarted):
            self._names = {node.rank: node.name for node in event.nodes}
        elif isinstance(event, (NodeLost, NodeUnreachable)) and event.time >= self._since:
            kept = threading.Thread(target=self._keep, args=(self._names[event.rank],), daemon=True)
            kept.start()
            self._threads.append(kept)

    def wait(self) -> None:
        """Wait until the evidence is written, for some seconds at most."""
        for thread in self._threads:
            thread.join(_WAIT_S)

    def _keep(self, name: str) -> None:
        (instance,) = [node.instance_id for node in self._inventory.nodes if node.name == name]
        with suppress(GpuctlError):  # a full disk: the run's own record says so
            for source, text in evidence(self._lab, instance).items():
                write_evidence(self._folder, name, f"lab-{source}", text)
