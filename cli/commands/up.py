"""`gpuctl up FILE`: create or change the cluster until it is ready for a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.plan import cluster_of, show
from cli.options import (
    RefreshOption,
    ReplaceOption,
    RuntimesOption,
    SetOption,
    YesOption,
    chosen_target,
    output,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from config.loading.substitutions import Substitutions
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget


_File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The cluster file; with --for a new one.")
]
_For = Annotated[
    Path | None,
    typer.Option(
        "--for", metavar="RUN_FILE", help="Propose a cluster file for this run file or manifest."
    ),
]


def up(
    context: typer.Context,
    file: _File = None,
    for_: _For = None,
    set_: SetOption = None,
    runtimes: RuntimesOption = None,
    yes: YesOption = False,
    refresh: RefreshOption = False,
    replace: ReplaceOption = None,
    no_lease: Annotated[
        bool, typer.Option("--no-lease", help="Without `lifetime`: it ends only with `down`.")
    ] = False,
) -> None:
    """Create or change a cluster, and wait until it is ready.

    With --for gpuctl proposes the cluster that a run needs, with its cost. With a FILE it writes
    the proposal there and goes on as `up FILE`; without one it prints it and creates nothing.

    $ gpuctl up cluster.yaml
    $ gpuctl up --for train.yaml
    $ gpuctl up cluster.yaml --for train.yaml
    """
    from cli.lease import chosen_lease
    from config.loading.substitutions import Substitutions
    from provision import up as life

    here, out = chosen_target(context), output(context)
    if for_ is not None:
        _propose(for_, file, Substitutions(tuple(set_ or ()), runtimes), here, out, yes=yes)
        if file is None:
            return
    if file is None:
        context.fail("Missing argument 'FILE'.")
    cluster = chosen_lease(cluster_of(file, out), here, out, no_lease=no_lease, yes=yes)
    with out.progress() as view:
        here.ensure_lab(view.report)
        target = here.target(cluster.region)
        fleet_plan = life.plan(cluster, target, view.report, refresh=refresh, replace=replace or ())
    if not out.as_json and not (out.is_quiet and yes):  # nobody is asked about it
        show(fleet_plan, out)
    fleet_plan.check_replacement()
    plan = fleet_plan.plan
    if plan.ends_machines:
        _check_free(here, cluster.name, out)
    if not plan.is_empty:
        out.confirm(f"Create or change cluster {cluster.name}?", yes)
    if plan.ends_machines and not yes:  # one may have begun while the person read the plan
        _check_free(here, cluster.name, out)
    with out.progress() as view:
        here.ensure_image(cluster.image, target.region, view.report)
        inventory = life.up(fleet_plan, target, view.report)
    out.show(inventory.model_dump(mode="json"), _lines(inventory))


def _check_free(here: "ChosenTarget", cluster: str, out: "Output") -> None:
    from operations.cluster_occupancy import check_free

    hint = "stop the run first (`gpuctl stop {run}`) or wait for its end (`gpuctl wait {run}`)"
    check_free(here, cluster, "this plan ends machines", hint, out.progress())


def _propose(
    run_file: Path,
    file: Path | None,
    given: "Substitutions",
    here: "ChosenTarget",
    out: "Output",
    *,
    yes: bool,
) -> None:
    """Write the proposed cluster file, or print it if there is no name for it."""
    from cli.proposal import proposal_for, show, write
    from config.errors import InputError

    if file is None and yes:
        hint = f"gpuctl up cluster.yaml --for {run_file} --yes"
        raise InputError("--yes needs a name for the cluster file that --for proposes", hint)
    proposal = proposal_for(run_file, given, here.region, out)
    if file is None:
        show(proposal, run_file, out)
    else:
        write(proposal, run_file, file, out)


def _lines(inventory: "Inventory") -> "Iterator[str]":
    way = f": bastion {inventory.bastion.address}" if inventory.bastion else ""
    yield f"\nCluster {inventory.cluster} is ready{way}"
    for gone in inventory.replaced:
        yield f"  {gone.name}: {gone.instance_id} was replaced: {gone.cause}"
    for node in inventory.nodes:
        public = f"  {node.public_ip}" if node.public_ip else ""
        yield f"  rank {node.rank}  {node.name}  {node.private_ip}{public}  {node.instance_id}"
