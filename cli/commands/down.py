"""`gpuctl down CLUSTER`: remove everything of the cluster."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output
from cli.render import teardown as render
from config.errors import InputError
from config.quantities import counted
from operations import release

if TYPE_CHECKING:
    from cli.output import Output
    from operations.release import Ownership

_UNVERIFIED = "--verify asks AWS what is left, and these machines are yours"


def down(
    context: typer.Context,
    cluster: ClusterArgument,
    cluster_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The cluster's id, where several have that name."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Then prove by AWS's lists that nothing is left.")
    ] = False,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="NAME",
            help="Whose cluster it is, if it is not yours: removes it without asking for its name.",
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Remove everything of a cluster, also what was left half-made.

    It first prints the machines, the data that is lost, and what stays; with --json they are the
    result's `plan`.
    If the cluster belongs to somebody else, gpuctl asks for its name, also with --yes.

    $ gpuctl down demo
    $ gpuctl down demo --yes --verify --json
    """
    chosen, out = chosen_target(context), output(context)
    with out.progress() as view:
        removal = release.plan_removal(chosen, cluster, cluster_id=cluster_id, watcher=view)
        losses = None
        if yes or sys.stdin.isatty():
            losses = release.losses(chosen, removal, watcher=view)
    plan = render.RemovalPlan(tuple(run.run_id for run in removal.runs), losses, removal.outputs)
    if not out.as_json:
        for line in render.loss_lines(losses, removal.outputs):
            out.note(line)
    if removal.occupancy and yes:
        out.warn(f"{removal.occupancy}; it ends with the cluster")
    ends = f"{removal.occupancy}; it ends with the cluster. " if removal.occupancy else ""
    which = f" {cluster_id}" if cluster_id else ""
    what = f"cluster {cluster}{which} and everything in it"
    if removal.hosts:
        machines = counted(len(removal.hosts), "machine")
        what = f"everything that gpuctl wrote on {machines} of cluster {cluster}"
        if removal.others:
            others = ", ".join(removal.others)
            what = f"your access to {machines} of cluster {cluster}, which {others} uses too"
        if verify:
            raise InputError(_UNVERIFIED, "leave it out: `down` says what it removed, and where")
    out.confirm(f"{ends}Remove {what}?", yes)
    ownership = release.check_owner(chosen, cluster, cluster_id=cluster_id, owner=owner)
    if ownership is not None:
        _ask_for_name(ownership, out)
    with out.progress() as view:
        teardown = release.down(chosen, removal, watcher=view)
    if verify:
        render.note_teardown(teardown, out)
        render.show_verified(teardown, release.verify(chosen, teardown), plan, out)
    else:
        render.show_teardown(teardown, out, plan)


def _ask_for_name(ownership: "Ownership", out: "Output") -> None:
    """Have the person type the name of somebody else's cluster.

    Raises InputError if they do not, or if no terminal can ask.
    """
    whose = f"cluster '{ownership.name}' (id {ownership.id or 'none'}) {ownership.text}"
    if not sys.stdin.isatty():
        raise InputError(
            f"{whose}, and there is no terminal to ask on",
            f"ask them to remove it, or add {shlex.join(['--owner', ownership.owner])}",
        )
    answer = out.ask(f"{whose[0].upper()}{whose[1:]}. Type its name to remove it: ")
    if answer.strip() != ownership.name:
        raise InputError("nothing was done", f"the name is '{ownership.name}'")
