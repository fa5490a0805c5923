"""The Python API's functions: what the commands of `gpuctl` do, with values instead of text."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Unpack

from config import explanation
from config import schema as file_schema
from config import settings as user_settings
from config.cluster.cluster_file import Cluster as ClusterFile
from config.cluster.hosts_file import HostsCluster
from config.diagnostic import Diagnostic
from config.errors import (
    BrokenNodes,
    CloudError,
    GpuctlError,
    InfraError,
    InputError,
    Interrupted,
    InvalidFiles,
    LabError,
    NodeError,
    RunError,
    StateError,
)
from config.loading import load
from config.loading import templates as template_files
from config.loading.overrides import Overrides, Substitutions
from gpuctl.calls import Caller, TargetOptions, api_call, caller_of, seconds_of
from gpuctl.cluster_api import Cluster
from gpuctl.lab_api import Lab
from gpuctl.run_api import Run
from gpuctl.run_options import RunOptions, RunPlanOptions, prepare
from operations import capacity as offers
from operations import cost as spending
from operations import doctor as checks
from operations import (
    hosts,
    kept_logs,
    known,
    lease,
    orphans,
    permissions,
    proposal,
    release,
    rent,
    run_search,
    status,
)
from operations import usage as node_usage
from operations.prepared_run import PreparedRun
from operations.runs import Detached
from operations.support import pack_support
from operations.watcher import LoggingWatcher, Watcher

__all__ = [
    "BrokenNodes",
    "CloudError",
    "Cluster",
    "Detached",
    "GcResult",
    "GpuctlError",
    "InfraError",
    "InputError",
    "Interrupted",
    "InvalidFiles",
    "Lab",
    "LabError",
    "LoggingWatcher",
    "NodeError",
    "Run",
    "RunError",
    "RunOptions",
    "RunPlanOptions",
    "StateError",
    "TargetOptions",
    "Watcher",
    "buy",
    "capacity",
    "cluster",
    "clusters",
    "cost",
    "docs",
    "doctor",
    "explain",
    "gc",
    "iam_boundary",
    "iam_policy",
    "plan",
    "plan_run",
    "propose",
    "prune_logs",
    "run",
    "runs",
    "schema",
    "settings",
    "support",
    "templates",
    "up",
    "usage",
    "validate",
]


@api_call
def plan(
    file: str | Path,
    *,
    refresh: bool = False,
    replace: Sequence[str] = (),
    **options: Unpack[TargetOptions],
) -> rent.FleetPlan:
    """Return what `up` would change, and its cost; create nothing."""
    caller = caller_of(options)
    cluster = load.load_cluster(Path(file), caller.watcher.warn)
    cluster = lease.with_lifetime(caller.target, cluster)
    return rent.plan(
        caller.target, cluster, refresh=refresh, replace=replace, watcher=caller.watcher
    )


@api_call
def up(
    file: str | Path,
    *,
    lifetime: str | timedelta | None = None,
    no_lease: bool = False,
    refresh: bool = False,
    replace: Sequence[str] = (),
    keep_failed: bool = False,
    accept_new_host_keys: bool = False,
    **options: Unpack[TargetOptions],
) -> Cluster:
    """Create or change the cluster of the file, and return it when it is ready for a run.

    `lifetime` (`8h`) is the lease of a new cluster whose file has none; `no_lease` says that it is
    to have none. `refresh` renews the launch settings of new machines, `replace` makes new machines
    of these nodes. A new cluster that does not become ready, also because of Ctrl-C, is removed
    before the error is raised, unless `keep_failed` keeps it for inspection.

    With `hosts` in the file it writes on the machines what `gpuctl up` shows, without a question;
    `accept_new_host_keys` accepts unknown host keys. Other parameters do nothing then.
    """
    caller = caller_of(options)
    cluster = load.load_any_cluster(Path(file), caller.watcher.warn)
    if isinstance(cluster, HostsCluster):
        hosts_plan = hosts.plan(
            caller.target,
            cluster,
            accept_new_host_keys=accept_new_host_keys,
            watcher=caller.watcher,
        )
        hosts.up(caller.target, hosts_plan, watcher=caller.watcher)
        return Cluster(cluster.name, caller)
    cluster = _with_lease(caller, cluster, lifetime, no_lease=no_lease)
    fleet_plan = rent.plan(
        caller.target, cluster, refresh=refresh, replace=replace, watcher=caller.watcher
    )
    is_new = fleet_plan.plan.is_new and not fleet_plan.plan.is_empty
    try:
        rent.up(caller.target, fleet_plan, watcher=caller.watcher)
    except BaseException as error:  # Ctrl-C too: no caller has the cluster yet, and it bills
        if is_new and not keep_failed:
            _remove_failed(caller, cluster.name, error)
        raise
    return Cluster(cluster.name, caller)


def cluster(name: str, **options: Unpack[TargetOptions]) -> Cluster:
    """Return the cluster of this name, which need not exist; nothing is asked."""
    return Cluster(name, caller_of(options))


@api_call
def clusters(**options: Unpack[TargetOptions]) -> tuple[status.ClusterStatus, ...]:
    """Return every cluster in the region or in this machine's records, as `gpuctl status`."""
    return status.clusters(caller_of(options).target)


@api_call
def propose(
    run_file: str | Path,
    *,
    values: Iterable[str] = (),
    runtimes: Path | None = None,
    **options: Unpack[TargetOptions],
) -> proposal.Proposal:
    """Return the cluster that the run file or manifest asks for, with its cost."""
    caller = caller_of(options)
    given = Substitutions(tuple(values), runtimes)
    return proposal.propose(
        caller.target, Path(run_file), substitutions=given, warn=caller.watcher.warn
    )


@api_call
def run(name: str | None = None, **options: Unpack[TargetOptions]) -> Run:
    """Return the run of this id, else the newest of this name; without a name the newest."""
    caller = caller_of(options)
    if name is None:
        return Run(known.newest_run(caller.target).run_id, caller)
    record = run_search.find_run(caller.target, name, watcher=caller.watcher)
    return Run(record.run_id, caller)


@api_call
def plan_run(
    file: str | Path,
    *,
    cluster: str | Path | None = None,
    inventory: str | Path | None = None,
    **options: Unpack[RunPlanOptions],
) -> PreparedRun:
    """Return the run as it would start, with its launch plan; nothing is started or asked.

    It is on the cluster, by default the only one, or on nodes that need not exist: those of a
    cluster file (`cluster` is its path) or of a saved `inventory`, or, if there is no cluster, any
    that fit. `warnings` says which.
    """
    saved = None if inventory is None else Path(inventory)
    caller = caller_of(options)
    name = None if cluster is None else str(cluster)
    return prepare(caller, Path(file), options, cluster=name, inventory=saved, preview=True)


@api_call
def runs(limit: int | None = None, **options: Unpack[TargetOptions]) -> tuple[known.ListedRun, ...]:
    """Return the runs as they are now, newest first, as `gpuctl ps`."""
    caller = caller_of(options)
    return known.list_runs(caller.target, limit=limit, watcher=caller.watcher)


@api_call
def prune_logs(
    older_than: str | timedelta | None = None, **options: Unpack[TargetOptions]
) -> kept_logs.Pruning:
    """Remove logs beyond 30 days and 10 GiB, or older than this; return which. Results stay."""
    caller = caller_of(options)
    age = None if older_than is None else seconds_of(older_than, "older_than")
    pruning = kept_logs.plan_pruning(caller.target, age_s=age, watcher=caller.watcher)
    kept_logs.prune(pruning)
    return pruning


@api_call
def usage(**options: Unpack[TargetOptions]) -> tuple[node_usage.ClusterUsage, ...]:
    """Return what runs use of the nodes of every cluster now, as `gpuctl top`."""
    caller = caller_of(options)
    watched = node_usage.find_watched(caller.target, watcher=caller.watcher)
    return node_usage.current_usage(watched, watcher=caller.watcher)


@api_call
def capacity(
    instance_type: str,
    *,
    nodes: int = 1,
    days: int = 1,
    earliest: date | None = None,
    **options: Unpack[TargetOptions],
) -> offers.CapacityReport:
    """Return where the instance type is available, and its prices; it reserves nothing.

    The capacity blocks have so many nodes and days, and begin on the day `earliest` or later.
    """
    caller, size = caller_of(options), offers.BlockSize(nodes, days, earliest)
    return offers.find(caller.target, instance_type, size, watcher=caller.watcher)


@api_call
def buy(
    instance_type: str,
    *,
    pay: float,
    nodes: int = 1,
    days: int = 1,
    earliest: date | None = None,
    zone: str | None = None,
    **options: Unpack[TargetOptions],
) -> offers.ReservedCapacity:
    """Buy the earliest capacity block of this size for `pay` dollars, which AWS charges at once.

    AWS never takes a block back. InputError if none is offered, or if it costs another sum.
    """
    caller, size = caller_of(options), offers.BlockSize(nodes, days, earliest)
    block = offers.find_block(caller.target, instance_type, size, zone=zone, watcher=caller.watcher)
    return offers.buy(caller.target, block, pay)


@api_call
def cost(
    since: str | timedelta = "30d",
    *,
    by: spending.By = "cluster",
    **options: Unpack[TargetOptions],
) -> spending.Costs:
    """Return what this machine's clusters have cost at list prices, by cluster, run or tag."""
    caller = caller_of(options)
    begin = datetime.now(UTC) - timedelta(seconds=seconds_of(since, "since"))
    return spending.find(caller.target, begin, by=by, watcher=caller.watcher)


@dataclass(frozen=True)
class GcResult:
    """What exists (`survey`), and the outcome for each cluster whose rest was removed."""

    survey: orphans.Survey
    removed: tuple[orphans.Collected, ...]


@api_call
def gc(
    *,
    remove: bool = False,
    doubtful: bool = False,
    owners: Collection[str] = (),
    **options: Unpack[TargetOptions],
) -> GcResult:
    """Find resources that no cluster uses any more; with `remove` remove those that are orphaned.

    `doubtful` also removes what another machine of yours may still use. What belongs to one of
    `owners` (ARNs) counts as yours. It searches all regions that the account has enabled, or
    `region`.
    """
    caller = caller_of(options)
    survey = orphans.find(caller.target, owners=owners, watcher=caller.watcher)
    verdicts = ("orphaned", "doubtful") if doubtful else ("orphaned",)
    chosen = [cluster for cluster in survey.clusters if remove and cluster.verdict in verdicts]
    removed = orphans.remove(caller.target, chosen, owners=owners, watcher=caller.watcher)
    return GcResult(survey, removed)


@api_call
def doctor(**options: Unpack[TargetOptions]) -> tuple[checks.Check, ...]:
    """Check this machine: Pulumi's engine, credentials, permissions, lab; each with its remedy."""
    return tuple(checks.checks(caller_of(options).target))


@api_call
def support(
    to: str | Path,
    *,
    runs: Sequence[str] = (),
    **options: Unpack[TargetOptions],
) -> tuple[str, ...]:
    """Pack versions, checks, logs, records and events of these runs to ask for help.

    Return the names of the files in the archive.
    """
    caller = caller_of(options)
    return pack_support(caller.target, Path(to), runs=runs, watcher=caller.watcher)


@api_call
def iam_policy(
    file: str | Path | None = None,
    *,
    commands: Sequence[str] = (),
    instance_profile: str | None = None,
    **options: Unpack[TargetOptions],
) -> tuple[dict[str, Any], ...]:
    """Return the least IAM policies for commands, by default all; `file` names one cluster."""
    return permissions.policy_documents(
        caller_of(options).target,
        cluster=None if file is None else load.load_cluster(Path(file)),
        commands=commands or permissions.COMMANDS,
        instance_profile=instance_profile,
    )


def iam_boundary() -> dict[str, Any]:
    """Return the permissions boundary of the nodes' roles: the most that they may do."""
    return permissions.boundary_document()


def validate(
    file: str | Path,
    *,
    strict: bool = False,
    values: Iterable[str] = (),
    runtimes: Path | None = None,
) -> tuple[Diagnostic, ...]:
    """Return every error and warning about a cluster file, run file or manifest."""
    given = Overrides(manifest=Substitutions(tuple(values), runtimes))
    return load.check(Path(file), given, is_strict=strict)


def templates() -> tuple[template_files.Template, ...]:
    """Return the run files that `extends: NAME` takes: gpuctl's and yours."""
    return template_files.templates()


def schema(kind: Literal["cluster", "run"]) -> dict[str, Any]:
    """Return the JSON Schema of `cluster` or `run` files."""
    return file_schema.json_schema(kind)


def explain(name: str) -> explanation.Explanation:
    """Return what a diagnostic, an error code of AWS or a field such as `run.env` means."""
    return explanation.explain(name)


def docs() -> Path:
    """Return the folder of the documentation on this machine."""
    return explanation.documents()


def settings() -> dict[str, user_settings.Setting]:
    """Return the settings that count now, and where each comes from."""
    return user_settings.settings()


def _remove_failed(caller: Caller, name: str, error: BaseException) -> None:
    """Remove a new cluster that did not become ready; add to the error what was done."""
    try:
        teardown = release.remove_failed(caller.target, name, watcher=caller.watcher)
    except GpuctlError as problem:  # the first error matters
        error.add_note(f"cluster {name} could not be removed: {problem}")
        return
    if teardown is not None:
        error.add_note(f"cluster {name} has been removed")


def _with_lease(
    caller: Caller, cluster: ClusterFile, lifetime: str | timedelta | None, *, no_lease: bool
) -> ClusterFile:
    """Return the cluster with the lease that its file, the caller or the settings give it."""
    if no_lease:
        return lease.without_lease(cluster)
    if lifetime is not None and lease.is_new_without_end(caller.target, cluster):
        return lease.with_end_after(cluster, seconds_of(lifetime, "lifetime"))
    cluster = lease.with_lifetime(caller.target, cluster)
    if lease.is_new_without_end(caller.target, cluster):
        caller.watcher.warn(
            f"cluster {cluster.name} has no lease: it ends only with down(); set `lifetime` in its"
            ' file, or pass lifetime="8h" or no_lease=True'
        )
    return cluster
