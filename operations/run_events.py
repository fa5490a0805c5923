"""What a client needs to show a run's events: whole lines of output, tables, costs, JSON."""

from config.catalogue.instance_types import price_usd_h
from engine.agent.journal.lines import Line, WholeLines
from engine.analysis.metrics.usage import IdleCost, idle_cost
from engine.contract.event import Event
from engine.contract.head_events import GpusIdle
from engine.contract.worker_events import Output
from engine.record.events import event_json
from engine.record.nccl_tests import TableCollector
from engine.session.following import OnEvent
from nodes.inventory import Inventory

__all__ = [
    "Event",
    "Line",
    "OnEvent",
    "Output",
    "TableCollector",
    "WholeLines",
    "event_json",
    "idle_cost_of",
    "node_usd_h",
    "nodes_usd_h",
]


def nodes_usd_h(inventory: Inventory) -> float | None:
    """Return the on-demand price of all nodes for an hour in dollars; None if it is not known."""
    price = node_usd_h(inventory)
    return None if price is None else len(inventory.nodes) * price


def node_usd_h(inventory: Inventory) -> float | None:
    """Return the on-demand price of a node for an hour in dollars; None if it is not known."""
    return price_usd_h(inventory.instance_type)


def idle_cost_of(event: GpusIdle, name: str, inventory: Inventory | None) -> IdleCost | None:
    """Return what the idle GPUs of the node cost; its price is unknown without an inventory."""
    price = None if inventory is None else price_usd_h(inventory.instance_type)
    nodes = () if inventory is None else inventory.nodes
    count = next((node.gpus for node in nodes if node.name == name), len(event.gpus))
    return idle_cost(name, [(gpu, event.seconds) for gpu in event.gpus], count, price)
