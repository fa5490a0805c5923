"""`gpuctl down CLUSTER`: remove everything of the cluster."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import YesOption, chosen_target, output

if TYPE_CHECKING:
    from cli.output import Output
    from cli.render.progress import ProgressView
    from engine.session.cluster_runs import Holder
    from operations.chosen_target import ChosenTarget
    from provision.down import Teardown
    from provision.removal.verification import Verification


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

    If the cluster belongs to somebody else, gpuctl asks for its name, also with --yes.

    $ gpuctl down demo
    $ gpuctl down demo --yes --verify --json
    """
    from cli.held import describe, no_healing

    here, out = chosen_target(context), output(context)
    here.require_lab()
    which = f" {cluster_id}" if cluster_id else ""
    runs = _holders(here, cluster, cluster_id, out)
    held = describe(here, cluster, runs)
    if held and yes:
        out.warn(f"{held}; it ends with the cluster")
    ends = f"{held}; it ends with the cluster. " if held else ""
    out.confirm(f"{ends}Remove cluster {cluster}{which} and everything in it?", yes)
    _check_owner(here, cluster, cluster_id, owner, out)
    with no_healing(here, cluster, runs), out.progress() as view:
        teardown = remove(here, cluster, view, cluster_id)
    if verify:
        _show_verified(here, teardown, out)
    else:
        show(teardown, out)


def _check_owner(
    here: "ChosenTarget", cluster: str, cluster_id: str | None, owner: str | None, out: "Output"
) -> None:
    """Have the person type the name of somebody else's cluster, unless --owner names its owner.

    Raises InputError if they do not, if no terminal can ask, or if --owner names somebody else.
    """
    from config.errors import InputError
    from provision.ownership import find_ownership

    found = find_ownership(cluster, here.cluster_target(cluster), cluster_id)
    if found is None or (found.is_ours and owner is None):
        return
    whose = f"cluster '{cluster}' (id {found.id or 'none'}) {found.text}"
    option = shlex.join(["--owner", found.owner])
    if owner is not None and owner != found.owner:
        raise InputError(f"{whose}, not to {owner}", f"write {option} if that is the one you mean")
    if owner is not None:
        return
    if not sys.stdin.isatty():
        raise InputError(
            f"{whose}, and there is no terminal to ask on",
            f"ask them to remove it, or add {option}",
        )
    if out.ask(f"{whose[0].upper()}{whose[1:]}. Type its name to remove it: ").strip() != cluster:
        raise InputError("nothing was done", f"the name is '{cluster}'")


def _show_verified(here: "ChosenTarget", teardown: "Teardown", out: "Output") -> None:
    """Ask AWS what is left of the cluster; print the removal and the answer."""
    from dataclasses import asdict, replace

    from provision.removal.verification import verify

    out.note(text(teardown))
    _warn(teardown, out)
    target = replace(here.target(teardown.region), region=teardown.region)
    proof = verify(teardown.name, teardown.id, target)
    out.show({**asdict(teardown), "verified": asdict(proof)}, [_proof_text(proof)])


def _proof_text(proof: "Verification") -> str:
    tags = " and ".join(f"{tag}={value}" for tag, value in proof.tags.items())
    ended = f"; {len(proof.instances)} instances are terminated" if proof.instances else ""
    return (
        f"Verified: AWS lists nothing with {tags} in {proof.region},"
        f" of {len(proof.kinds)} kinds of resources, asked {proof.rounds} times{ended}."
    )


def _holders(
    here: "ChosenTarget", cluster: str, cluster_id: str | None, out: "Output"
) -> "tuple[Holder, ...]":
    """Return the runs on the cluster; none where none is known."""
    from cli.held import holders_of
    from provision.records.record import last_known

    if cluster_id is not None:
        record = last_known(cluster, here.remembered())
        if record is None or record.id != cluster_id:
            return ()  # another person's cluster of that name: its head is unknown here
    return holders_of(here, cluster, out)


def remove(
    here: "ChosenTarget", cluster: str, view: "ProgressView", cluster_id: str | None = None
) -> "Teardown":
    """Remove the cluster; record the runs that were still going on it as failed."""
    from dataclasses import replace

    from config.errors import RunError, StateError
    from engine.record.history import History
    from nodes.dial import end as end_broker
    from provision.down import down as take_down
    from provision.records.record import last_known

    target = here.cluster_target(cluster)
    end_broker(str(target.clusters / cluster))
    teardown = take_down(cluster, target, view.report, cluster_id)
    if last_known(cluster, target) is not None:
        return teardown  # another person's was removed: this machine's cluster and its runs stay
    try:
        with History(target.runs) as history:
            for run in history.runs():
                if run.cluster == cluster and not run.is_over:
                    history.mark_lost(run.run_id, "its cluster was removed")
    except (StateError, RunError) as error:  # a full disk: the cluster is gone, its runs stay
        return replace(teardown, warnings=(*teardown.warnings, str(error)))
    return teardown


def show(teardown: "Teardown", out: "Output") -> None:
    """Print the number of removed resources and the cluster's cost on stdout."""
    from dataclasses import asdict

    out.show(asdict(teardown), [text(teardown)])
    _warn(teardown, out)


def _warn(teardown: "Teardown", out: "Output") -> None:
    for warning in teardown.warnings:
        out.warn(warning)


def text(teardown: "Teardown") -> str:
    """Return the line about the removal: the number of resources, and the cluster's cost."""
    from config.quantities import elapsed, money

    cost = "cost unknown" if teardown.cost_usd is None else f"about {money(teardown.cost_usd)}"
    return (
        f"Cluster {teardown.name} is gone: {len(teardown.removed)} resources removed, "
        f"up {elapsed(teardown.seconds_up)}, {cost} at list price."
    )
