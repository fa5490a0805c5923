"""`gpuctl up FILE`: the cluster of the file exists and is ready for a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.plan import FileArgument, JsonOption, RefreshOption, show
from cli.session import cluster_of, confirm, progress, session

if TYPE_CHECKING:
    from nodes.inventory import Inventory

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def up(
    context: typer.Context,
    file: FileArgument,
    yes: YesOption = False,
    refresh: RefreshOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create or change the cluster of FILE, and wait until it is ready for a run."""
    from cli.held import refuse_while_held
    from provision import up as life

    here = session(context)
    cluster = cluster_of(file)
    with progress(as_json) as view:
        here.ensure_lab(view)
        target = here.target(cluster.region)
        fleet_plan = life.plan(cluster, target, view.report, refresh=refresh)
    if not as_json:
        show(fleet_plan, as_json=False)
    plan = fleet_plan.plan
    if not plan.only_adds:
        refuse_while_held(here, cluster.name)
    if not plan.is_empty:
        confirm(f"Create or change cluster {cluster.name}?", yes)
    if not plan.only_adds and not yes:  # one may have begun while the person read the plan
        refuse_while_held(here, cluster.name)
    with progress(as_json) as view:
        here.ensure_image(cluster.image, target.region, view)
        inventory = life.up(fleet_plan, target, view.report)
    _show(inventory, as_json)


def _show(inventory: "Inventory", as_json: bool) -> None:
    from cli.terminal import say, say_json

    if as_json:
        say_json(inventory.model_dump(mode="json"))
        return
    way = f": bastion {inventory.bastion.address}" if inventory.bastion else ""
    say(f"\nCluster {inventory.cluster} is ready{way}")
    for node in inventory.nodes:
        public = f"  {node.public_ip}" if node.public_ip else ""
        say(f"  rank {node.rank}  {node.name}  {node.private_ip}{public}  {node.instance_id}")
