"""The nodes that a run is planned for before its cluster exists.

Nothing is asked of AWS, and no credentials are needed.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from config.catalogue.instance_types import price_usd_h
from config.cluster.cluster_file import Cluster
from config.command_text import command_text
from config.errors import InputError
from config.identifiers import CLUSTER_NAME
from config.loading.load import load_cluster
from config.quantities import counted, money
from config.run.requirements import Requires
from config.run.run_file import Run
from engine.plan import proposal as engine_proposal
from engine.plan.modes.job import node_range
from engine.plan.rules import wanted_gpus
from engine.plan.stand_in import stand_in
from nodes.inventory import Inventory
from operations import proposal
from operations.chosen_target import ChosenTarget

_PLACEHOLDERS = "addresses and devices are placeholders"


@dataclass(frozen=True)
class PlannedNodes:
    """The inventory that nodes would have, and a warning that says which nodes these are."""

    inventory: Inventory
    warning: str


def is_cluster_file(text: str) -> bool:
    """Return whether the text is the path of a cluster file, and no cluster's name."""
    return re.fullmatch(CLUSTER_NAME, text) is None


def check_is_name(text: str) -> None:
    """Raise InputError for a cluster file where a cluster has to exist."""
    if is_cluster_file(text):
        up = command_text("gpuctl up {}", Path(text))
        hint = f"{up} creates it; with --dry-run the run is planned for the file"
        raise InputError(f"--cluster is {text}, which is not the name of a cluster", hint)


def of_cluster_file(chosen: ChosenTarget, file: Path) -> PlannedNodes:
    """Return the nodes of a cluster file; InputError if it cannot be read."""
    cluster = load_cluster(file)
    inventory = stand_in(cluster, region=chosen.default_region)
    return PlannedNodes(
        inventory,
        f"the run is planned for cluster {cluster.name} of {file}, {_size(cluster)};"
        f" {_PLACEHOLDERS}",
    )


def that_fit(chosen: ChosenTarget, run: Run, run_file: Path) -> PlannedNodes:
    """Return nodes of the cheapest type that fits the run; of no type if the run names none."""
    with_needs = proposal.with_requirements(run, run_file) if run_file.is_file() else run
    if with_needs.requires is not None and with_needs.requires.name_a_type:
        cluster = engine_proposal.propose(with_needs, chosen.region).cluster
        inventory = stand_in(cluster, region=chosen.default_region)
        what = f"{_size(cluster)}, the cheapest that fits"
    else:
        inventory = _of_no_type(chosen, run)
        nodes, gpus = len(inventory.nodes), inventory.nodes[0].gpus
        what = (
            f"{counted(nodes, 'node')} with {counted(gpus, 'GPU') if gpus else 'no GPUs'},"
            " because its file names no type of GPU (`requires`);"
            " --cluster FILE names a cluster file"
        )
    return PlannedNodes(
        inventory, f"there is no cluster: the run is planned for {what}; {_PLACEHOLDERS}"
    )


def _of_no_type(chosen: ChosenTarget, run: Run) -> Inventory:
    """Return as many nodes as the run needs, with the GPUs and in the place that it asks for."""
    needs, (_, gpus) = run.requires or Requires(), wanted_gpus(run)
    cluster = Cluster(name="unknown", nodes=node_range(run)[0], instance_type="unknown")
    place = {
        "region": next(iter(needs.regions), chosen.default_region or ""),
        "zone": next(iter(needs.zones), ""),
        "is_spot": bool(needs.spot),
        "root_gib": 0,  # not known
    }
    return stand_in(cluster, gpus=gpus).model_copy(update=place)


def _size(cluster: Cluster) -> str:
    """Return the nodes of the cluster, and their price."""
    usd = price_usd_h(cluster.instance_type)
    cost = "of unknown price" if usd is None else f"at {money(cluster.nodes * usd)} per hour"
    return f"{cluster.nodes} x {cluster.instance_type} {cost} on demand"
