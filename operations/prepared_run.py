"""A run before it starts: its launch plan, and what a person has to consent to."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from config.errors import InputError
from config.files import read_regular
from config.folders import user_path
from config.person import this_person
from config.run.code_rules import outside_paths, run_sources, size_mistake
from config.run.run_file import Run
from engine.contract.plan import BudgetPlan, LaunchPlan
from engine.plan import launch_plan as planning
from engine.plan.script import with_scripts
from engine.plan.secrets import credentials, is_notifications_alone
from engine.plan.source_tree import Tree, checkout, tree_of
from engine.record.outputs_folder import OUTPUTS, check_outputs
from nodes.inventory import Inventory
from operations import proposal, run_queue
from operations.chosen_target import ChosenTarget
from operations.planned_nodes import (
    PlannedNodes,
    check_is_name,
    is_cluster_file,
    of_cluster_file,
    that_fit,
)
from provision.billing.cost import WARN_SHARE, hourly_usd
from provision.state.store import ClusterStore

__all__ = ["Tree"]

OnStop = Literal["keep", "destroy"]


@dataclass(frozen=True)
class Credential:
    """A credential of the environment that a run takes. `recipient` says who gets it, in words."""

    name: str
    recipient: str


@dataclass(frozen=True)
class PreparedRun:
    """A run that may start: `plan` is what runs, on the nodes of `inventory`.

    `tree` has the files that travel to the nodes; outputs come back to `outputs/RUN`. A person has
    to agree that the run takes the `credentials` of the environment, and that it sends the
    `outside_paths`, which are not in the run file's folder: to start it is to agree.
    """

    run: Run
    plan: LaunchPlan
    inventory: Inventory
    tree: Tree | None
    outputs: Path
    credentials: tuple[Credential, ...]
    outside_paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return which nodes the run is planned for before they exist, and the plan's warnings."""
        return self.notes + self.plan.warnings


def prepare(
    chosen: ChosenTarget,
    run: Run,
    file: Path,
    *,
    cluster: str | None = None,
    inventory: Inventory | None = None,
    on_stop: OnStop | None = None,
    no_image: bool = False,
    outputs: Path | None = None,
    queue: bool = False,
    preview: bool = False,
) -> PreparedRun:
    """Return the run as it would start; nothing is started, and nothing changes.

    `file` is the run file: what the run sends is relative to its folder. `cluster` is by default
    that of the run file, or the only one; `inventory` plans for nodes that need not exist.
    `on_stop` overrides the file. `no_image` runs on the nodes themselves. Outputs come back to
    `outputs/RUN`, by default next to the run file. With `queue` the run waits on the cluster while
    other runs have its nodes. A `preview` asks no node, so its plan may use nodes that other runs
    have, and it needs no cluster: `cluster` may be the path of a cluster file, and without any
    cluster the run is planned for nodes that fit. Raises InputError for a file that cannot run
    there.
    """
    changes: dict[str, Any] = {}
    if no_image:
        changes |= {"image": None, "registry_auth": None, "privileged": False, "volumes": ()}
    if on_stop is not None:
        changes["on_stop"] = on_stop
    run = run.model_copy(update=changes)
    outputs = _outputs(run, file, outputs)
    planned = _planned_nodes(chosen, cluster, run, file) if preview and not inventory else None
    budget = None
    if planned is not None:
        inventory = planned.inventory
    elif inventory is None:
        inventory = _inventory(chosen, cluster, run, file)
        budget = _budget(chosen, inventory) if run.notify else None
    tree = read_code(run, file)
    load = {} if preview else run_queue.current_load(run, inventory)
    plan = planning.launch_plan(run, inventory, planning.new_run_id(run.name), tree, load)
    sweep = plan.sweep
    if sweep is not None and chosen.lab is not None:  # the bandwidths are those of a lab
        sweep = replace(sweep, is_stand_in=True)
    plan = replace(
        plan,
        sweep=sweep,
        queue=queue,
        budget=budget,
        gpuctl=chosen.command,
        owner="" if preview else chosen.owner or this_person(),
    )
    return PreparedRun(
        run,
        plan,
        inventory,
        tree,
        outputs,
        _credentials(plan),
        outside_paths(run, file.parent),
        (planned.warning,) if planned else (),
    )


def saved_inventory(path: Path) -> Inventory:
    """Return the inventory that somebody saved in the file; InputError if it has none."""
    hint = "save one with `gpuctl up FILE --json` or from the cluster's state folder"
    try:
        return Inventory.model_validate_json(read_regular(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except ValidationError as error:
        raise InputError(f"{path}: is not an inventory", hint) from error


def read_code(run: Run, file: Path) -> Tree | None:
    """Return the files of a run, hashed; None for a run that names none.

    Fetches the repository that the run names. Raises InputError for files that cannot travel.
    """
    if not (run.workdir or run.repo or run.files):
        return None
    cloned = None if run.repo is None else checkout(run.repo)
    try:
        sources = run_sources(run, file.parent, cloned)
    except OSError as error:
        hint = "the files changed while they were read: run again"
        raise InputError(f"{error.filename} cannot be read: {error.strerror}", hint) from error
    # A repository, or files that grew meanwhile.
    if mistake := size_mistake(sources, run.code_limit):
        raise InputError(*mistake)
    return with_scripts(tree_of(sources), run)


def _outputs(run: Run, file: Path, chosen: Path | None) -> Path:
    """Return the folder for the run's outputs; InputError if it cannot be written."""
    if chosen is not None and not run.outputs:
        raise InputError(
            f"--outputs is '{chosen}', but {file} has no outputs",
            "name what comes back in the file: `outputs: [checkpoints/]`",
        )
    # A run file may be a pipe: `gpuctl run <(…)`.
    beside = (file.parent if file.is_file() else Path()) / OUTPUTS
    parent = user_path(chosen or beside).absolute()
    if run.outputs:
        check_outputs(parent)
    return parent


def _budget(chosen: ChosenTarget, inventory: Inventory) -> BudgetPlan | None:
    """Return the total budget of the cluster; None if it has none, or if no price is known."""
    record = ClusterStore(chosen.remembered()).record(inventory.cluster)
    budget = record.resolved.cluster.budget if record else None
    hourly = hourly_usd(record.resolved) if record else None
    if record is None or budget is None or budget.max_total is None or not hourly:
        return None
    most = budget.max_total
    return BudgetPlan(most, WARN_SHARE * most, hourly, record.created.timestamp())


def _credentials(plan: LaunchPlan) -> tuple[Credential, ...]:
    return tuple(
        Credential(name, "its notifications" if is_notifications_alone(plan, name) else "the job")
        for name in credentials(plan)
    )


def _planned_nodes(
    chosen: ChosenTarget, cluster: str | None, run: Run, file: Path
) -> PlannedNodes | None:
    """Return nodes that do not exist, of the cluster file or without any cluster; else None."""
    if cluster is not None:
        return of_cluster_file(chosen, Path(cluster)) if is_cluster_file(cluster) else None
    return None if chosen.cluster_names() else that_fit(chosen, run, file)


def _inventory(chosen: ChosenTarget, name: str | None, run: Run, file: Path) -> Inventory:
    """Return the inventory of the named cluster, by default of the run file's or the only one."""
    if name is not None:
        check_is_name(name)
    if name is None:
        chosen.require_lab()
        known = chosen.cluster_names()
        named = (
            [cluster for cluster in run.requires.clusters if cluster in known]
            if run.requires
            else []
        )
        known = named[:1] or known
        if len(known) != 1:
            which = f"there are several: {', '.join(known)}" if known else "there is no cluster"
            hint = "name one with --cluster" if known else proposal.no_cluster_hint(run, file)
            raise InputError(which, hint)
        name = known[0]
    return chosen.known_store(name).inventory(name)
