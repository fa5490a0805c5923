"""Rent a cluster: preview what changes, then create or change it until it is ready for a run."""

from collections.abc import Sequence

from config.cluster.cluster_file import Cluster
from config.errors import InputError
from infra.stack.changes import Plan
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import check_free
from operations.watcher import LoggingWatcher, Watcher
from provision import up as fleet
from provision.billing.cost import check_until
from provision.state.store import ClusterStore
from provision.up import FleetPlan

__all__ = ["FleetPlan", "Inventory", "Plan"]


def plan(
    chosen: ChosenTarget,
    cluster: Cluster,
    *,
    refresh: bool = False,
    replace: Sequence[str] = (),
    watcher: Watcher = LoggingWatcher(),
) -> FleetPlan:
    """Check the cluster against AWS, and return what `up` would change; create nothing.

    With `refresh` new machines get the launch settings of this gpuctl. The nodes in `replace` get
    new machines; `all` means each node. Raises InputError or CloudError with every problem at once.
    """
    if chosen.hosts_store().hosts_record(cluster.name) is not None:
        raise InputError(
            f"cluster '{cluster.name}' exists, and is of machines that you have",
            "choose another `name`",
        )
    chosen.ensure_lab(watcher.report)
    target = chosen.target(cluster.region)
    planned = fleet.plan(cluster, target, watcher.report, refresh=refresh, replace=replace)
    if cluster.budget and cluster.lifetime and planned.plan.new_machines:
        before = ClusterStore(target).record(cluster.name)
        if before is not None and before.status == "ready":
            check_until(
                cluster,
                planned.hourly_usd,
                before.created,
                cluster.lifetime.max,  # new machines have their own lease
                "set a shorter lifetime.max, or allow more: budget.max_total",
            )
    return planned


def check(
    chosen: ChosenTarget, fleet_plan: FleetPlan, *, watcher: Watcher = LoggingWatcher()
) -> None:
    """Raise InputError if the plan cannot be carried out now.

    That is if nodes would keep settings in which all must agree, or if the plan ends machines and
    a run is on the cluster.
    """
    fleet_plan.check_replacement()
    if fleet_plan.plan.ends_machines:
        check_free(
            chosen,
            fleet_plan.resolved.cluster.name,
            "this plan ends machines",
            "stop the run first (`gpuctl stop {run}`) or wait for its end (`gpuctl wait {run}`)",
            watcher,
        )


def up(
    chosen: ChosenTarget, fleet_plan: FleetPlan, *, watcher: Watcher = LoggingWatcher()
) -> Inventory:
    """Carry out the plan, and wait until every node is ready for a job.

    It is checked first (`check`): a run may have begun since the plan was made. After a failure the
    resources are kept for inspection; the error says how to remove them.
    """
    check(chosen, fleet_plan, watcher=watcher)
    cluster = fleet_plan.resolved.cluster
    target = chosen.target(cluster.region)
    chosen.ensure_image(cluster.image, target.region, watcher.report)
    return fleet.up(fleet_plan, target, watcher.report)
