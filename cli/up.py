"""`gpuctl up FILE`: create or change the cluster until it is ready for a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import FileArgument
from cli.options import RefreshOption, YesOption, chosen_target, output
from cli.plan import cluster_of, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodes.inventory import Inventory


def up(
    context: typer.Context,
    file: FileArgument,
    yes: YesOption = False,
    refresh: RefreshOption = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace all nodes, also without a reason in FILE.")
    ] = False,
) -> None:
    """Create or change a cluster, and wait until it is ready.

    $ gpuctl up cluster.yaml
    $ gpuctl up cluster.yaml --lab --yes
    """
    from cli.held import refuse_while_held
    from provision import up as life

    here, out = chosen_target(context), output(context)
    cluster = cluster_of(file, out)
    with out.progress() as view:
        here.ensure_lab(view)
        target = here.target(cluster.region)
        fleet_plan = life.plan(cluster, target, view.report, refresh=refresh)
    if not out.as_json and not (out.is_quiet and yes):  # nobody is asked about it
        show(fleet_plan, out)
    if not replace:
        fleet_plan.check_replacement()
    plan = fleet_plan.plan
    if not plan.only_adds:
        refuse_while_held(here, cluster.name, out)
    if not plan.is_empty:
        out.confirm(f"Create or change cluster {cluster.name}?", yes)
    if not plan.only_adds and not yes:  # one may have begun while the person read the plan
        refuse_while_held(here, cluster.name, out)
    with out.progress() as view:
        here.ensure_image(cluster.image, target.region, view)
        inventory = life.up(fleet_plan, target, view.report)
    out.show(inventory.model_dump(mode="json"), _lines(inventory))


def _lines(inventory: "Inventory") -> "Iterator[str]":
    way = f": bastion {inventory.bastion.address}" if inventory.bastion else ""
    yield f"\nCluster {inventory.cluster} is ready{way}"
    for node in inventory.nodes:
        public = f"  {node.public_ip}" if node.public_ip else ""
        yield f"  rank {node.rank}  {node.name}  {node.private_ip}{public}  {node.instance_id}"
