"""`gpuctl heal CLUSTER [NODE…]`: replace nodes that are not fit for jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.complete import nodes as known_nodes
from cli.options import YesOption, chosen_target, output
from config.command_text import command_text
from operations import heal as operation
from operations import out_of_service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.output import Output
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
    return_: Annotated[
        list[str] | None,
        typer.Option(
            "--return", metavar="NODE", help="With `hosts`: put a mended node into service again."
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Replace nodes that failed; the others stay as they are.

    A new machine takes the node's name and rank, in the same placement group and reservation.
    Machines that you have (`hosts`) are taken out of service instead: runs leave them out.

    $ gpuctl heal demo
    $ gpuctl heal demo node1 --yes
    $ gpuctl heal demo --return node1
    """
    chosen, out = chosen_target(context), output(context)
    if return_ or out_of_service.is_of_hosts(chosen, cluster):
        _change_service(chosen, cluster, out, leaving=node or (), back=return_ or (), yes=yes)
        return
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


def _change_service(
    chosen: "ChosenTarget",
    cluster: str,
    out: "Output",
    *,
    leaving: "Sequence[str]",
    back: "Sequence[str]",
    yes: bool,
) -> None:
    """Take nodes out of service, or put those of `back` into service again."""
    if back:
        with out.progress() as view:
            out_of_service.return_nodes(chosen, cluster, back, watcher=view)
        lines = [f"{name} is in service again" for name in back]
        out.show({"cluster": cluster, "returned": list(back)}, lines)
        return
    with out.progress() as view:
        outage = out_of_service.plan_outage(chosen, cluster, leaving, watcher=view)
    if not outage.nodes:
        document = {"cluster": cluster, "out_of_service": {}}
        out.show(document, [f"{cluster}: all nodes in service are fit for jobs"])
        return
    for name, why in outage.nodes.items():
        out.note(f"{name}: {why}")
    names = ", ".join(outage.nodes)
    out.confirm(f"Take {names} of cluster {cluster} out of service?", yes)
    out_of_service.take_out(chosen, outage)
    hint = (
        f"{command_text('gpuctl heal {} --return {}', cluster, next(iter(outage.nodes)))}"
        " after it is mended"
    )
    lines = [f"{name} is out of service: {why}" for name, why in outage.nodes.items()]
    out.show({"cluster": cluster, "out_of_service": dict(outage.nodes)}, [*lines, hint])
