"""`gpuctl heal CLUSTER [NODE…]`: replace nodes that are not fit for jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.complete import nodes as known_nodes
from cli.options import YesOption, chosen_target, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.output import Output
    from config.target import Target
    from nodes.inventory import Inventory, Node
    from operations.chosen_target import ChosenTarget


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
    from cli.commands.health import nodes_of
    from provision.healing import replace

    here, out = chosen_target(context), output(context)
    target = here.cluster_target(cluster)
    there = nodes_of(cluster, target, out)
    chosen = _named(there, node) if node else _unfit(there, target, out)
    if not chosen:
        out.show({"cluster": cluster, "replaced": {}}, [f"{cluster}: all nodes are fit for jobs"])
        return
    _refuse_while_held(here, cluster, out)
    names = ", ".join(f"{one.name} ({one.instance_id})" for one in chosen)
    if there.nodes[0] in chosen:
        out.warn(f"{there.nodes[0].name} is the head: what runs left there is lost with it")
    out.confirm(f"Terminate {names} of cluster {cluster}, and make it again?", yes)
    with out.progress() as view:
        anew = replace(cluster, chosen, target, view.report)
    ids = {one.name: one.instance_id for one in anew.nodes}
    out.show(
        {"cluster": cluster, "replaced": {one.name: ids[one.name] for one in chosen}},
        [f"{one.name}: {one.instance_id} is replaced by {ids[one.name]}" for one in chosen],
    )


def _named(there: "Inventory", names: "Sequence[str]") -> "list[Node]":
    """Return the nodes of these names; InputError for a name that no node has."""
    from config.errors import InputError
    from nodes.names import fold

    known = {node.name: node for node in there.nodes}
    for name in names:
        if name not in known:
            raise InputError(f"cluster {there.cluster} has no node {name}", f"it has {fold(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _unfit(there: "Inventory", target: "Target", out: "Output") -> "list[Node]":
    """Return the nodes that are not fit for jobs; say why."""
    import asyncio

    from cli.commands.health import check, unfit

    found = asyncio.run(check(there, target))
    for node in found:
        if node.is_grave:
            out.note(f"-- {node.node}: {node.text}")
    return _named(there, unfit(found))


def _refuse_while_held(here: "ChosenTarget", cluster: str, out: "Output") -> None:
    from operations.cluster_occupancy import check_free

    check_free(
        here,
        cluster,
        "its nodes would end",
        "stop the run first (`gpuctl stop {run}`); a run with `retry` replaces lost nodes by"
        " itself",
        out.progress(),
    )
