"""`gpuctl heal CLUSTER [NODE…]`: replace nodes that are not fit for jobs."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.complete import nodes as known_nodes
from cli.options import YesOption, chosen_target, output
from operations import heal as operation


def heal(
    context: typer.Context,
    cluster: ClusterArgument,
    node: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NODE",
            help="The nodes to replace; by default those that are not fit for jobs.",
            autocompletion=known_nodes,
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Replace nodes that failed; the others stay as they are.

    A new machine takes the node's name and rank, in the same placement group and reservation.

    $ gpuctl heal demo
    $ gpuctl heal demo node1 --yes
    """
    chosen, out = chosen_target(context), output(context)
    with out.progress() as view:
        planned = operation.plan_replacement(chosen, cluster, node or (), watcher=view)
    nodes = planned.nodes
    if not nodes:
        out.show({"cluster": cluster, "replaced": {}}, [f"{cluster}: all nodes are fit for jobs"])
        return
    names = ", ".join(f"{replaced.name} ({replaced.instance_id})" for replaced in nodes)
    if planned.head is not None:
        out.warn(f"{planned.head} is the head: what runs left there is lost with it")
    out.confirm(f"Terminate {names} of cluster {cluster}, and make it again?", yes)
    with out.progress() as view:
        inventory = operation.replace(chosen, planned, watcher=view)
    ids = {made.name: made.instance_id for made in inventory.nodes}
    out.show(
        {"cluster": cluster, "replaced": {old.name: ids[old.name] for old in nodes}},
        [f"{old.name}: {old.instance_id} is replaced by {ids[old.name]}" for old in nodes],
    )
