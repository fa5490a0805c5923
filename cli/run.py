"""`gpuctl run FILE`: a job on the nodes, followed live; then keep or destroy the fleet."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.plan import JsonOption
from cli.session import Session, progress, session, tell_warnings
from cli.terminal import say, warn

if TYPE_CHECKING:
    from config.run import Run
    from engine.events import Event
    from engine.plan import LaunchPlan
    from nodes.inventory import Inventory


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The run file, or a manifest.")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Where; by default the only cluster.")
    ] = None,
    on_stop: Annotated[
        str | None, typer.Option(help="keep or destroy the cluster; by default the file's on_stop.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the launch plan, run nothing.")
    ] = False,
    inventory: Annotated[
        Path | None, typer.Option(help="With --dry-run: a saved inventory instead of a cluster.")
    ] = None,
    no_image: Annotated[
        bool,
        typer.Option("--no-image", help="Run on the nodes themselves, not in the file's image."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a job, follow it, and exit with the job's own code (125: gpuctl itself failed)."""
    here = session(context)
    wanted = _wanted(file, on_stop)
    if no_image:
        wanted = wanted.model_copy(update={"image": None, "registry_auth": None})
    if inventory is not None and not dry_run:
        from config.errors import InputError

        raise InputError("--inventory is for plans alone", "add --dry-run, or name a --cluster")
    there = _saved(inventory) if inventory else _inventory(here, cluster)
    from engine.plan import launch_plan, new_run_id

    plan = launch_plan(wanted, there, new_run_id(wanted.name))
    for text in plan.warnings:
        warn(text)
    if dry_run:
        from cli.launch_text import show

        show(plan, as_json)
        return
    raise typer.Exit(_run(here, plan, there, as_json))


def _wanted(file: Path, on_stop: str | None) -> "Run":
    """The run of the file, --on-stop laid over; its warnings told."""
    from config.errors import InputError
    from config.load import load_run

    wanted = load_run(file)
    tell_warnings(file)
    if on_stop is None:
        return wanted
    if on_stop not in {"keep", "destroy"}:
        raise InputError(f"--on-stop is '{on_stop}'", "keep and destroy are allowed")
    return wanted.model_copy(update={"on_stop": on_stop})


def _saved(path: Path) -> "Inventory":
    from pydantic import ValidationError

    from config.errors import InputError
    from nodes.inventory import Inventory

    hint = "save one with `gpuctl up FILE --json` or from the cluster's state folder"
    try:
        return Inventory.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except ValidationError as error:
        raise InputError(f"{path}: is not an inventory", hint) from error


def _inventory(here: Session, name: str | None) -> "Inventory":
    """The inventory of the cluster named, or of the only one."""
    from config.errors import InputError
    from provision.record import load_inventory, records

    here.require_lab()
    if name is None:
        known = [record.name for record in records(here.remembered())]
        if len(known) != 1:
            which = f"there are several: {', '.join(known)}" if known else "there is no cluster"
            hint = "name one with --cluster" if known else "make one with `gpuctl up FILE`"
            raise InputError(which, hint)
        name = known[0]
    return load_inventory(name, here.cluster_target(name))


def _run(here: Session, plan: "LaunchPlan", there: "Inventory", as_json: bool) -> int:
    """The run is over, its fleet kept or destroyed; the job's exit code."""
    from cli.lab_evidence import LabEvidence
    from cli.run_view import RunView
    from engine.record import evidence_folder
    from engine.secrets import resolve
    from engine.session import ClusterBusy
    from engine.session import run as run_plan

    target = here.cluster_target(there.cluster)
    values = resolve(plan)
    plan = _with_image(plan, there, values, as_json)
    view = RunView(plan, as_json)
    if plan.dashboard and not as_json:
        say(_dashboard(here, plan))
    folder = evidence_folder(target.runs, plan.run_id)
    lab = LabEvidence(here.lab, there, folder) if here.lab else None

    def see(event: "Event") -> None:
        view.event(event)
        if lab is not None:
            lab.see(event)

    try:
        result = asyncio.run(run_plan(plan, there, target.runs, see, values))
    except ClusterBusy:
        raise  # the cluster is another run's: it is not ours to destroy
    except BaseException as error:
        if plan.on_stop == "destroy":
            # also after a failure of ours and a second Ctrl-C: what was to go must not bill on
            warn(str(error) or "interrupted")
            destroy(here, there.cluster, as_json)
        raise
    if lab is not None:
        lab.wait()
    evidence = folder if folder.exists() else None
    view.end(result, evidence)
    cost = None
    if plan.on_stop == "destroy":
        cost = destroy(here, there.cluster, as_json)
        _note_cost(target.runs, plan.run_id, cost)
    if as_json:
        view.end_json(result, cost, evidence)
    return result.exit_code


def _with_image(
    plan: "LaunchPlan", there: "Inventory", secrets: dict[str, str], as_json: bool
) -> "LaunchPlan":
    """The plan with its image pulled on all nodes and pinned; what that found is told."""
    if plan.image is None:
        return plan
    from engine.images import pull

    with progress(as_json) as view:
        pinned = asyncio.run(pull(plan, there, secrets, view.report))
    assert pinned.image is not None
    if not as_json:
        say(f"-- image {pinned.image.reference}, {pinned.image.digest or pinned.image.id}")
    for text in pinned.warnings[len(plan.warnings) :]:
        warn(text)
    return pinned


def _dashboard(here: Session, plan: "LaunchPlan") -> str:
    """Where the run's dashboard will be, and how to reach it: no port of a node is open to us."""
    address = plan.dashboard.partition("//")[2]
    port = address.rpartition(":")[2]
    lab = "".join(f" {word}" for word in (here.lab.options if here.lab else ()))
    tunnel = f"gpuctl{lab} ssh {plan.cluster} {plan.nodes[0].name} -- -N -L {port}:{address}"
    return f"-- dashboard {plan.dashboard}: `{tunnel}`, then open http://localhost:{port}"


def _note_cost(runs: Path, run_id: str, cost: float | None) -> None:
    from engine.history import History

    if cost is not None:
        with History(runs) as history:
            history.set_cost(run_id, cost)


def destroy(here: Session, cluster: str, as_json: bool) -> float | None:
    """The cluster is gone; what it cost is on the terminal and returned."""
    from cli.down import remove, show

    with progress(as_json) as view:
        teardown = remove(here, cluster, view)
    if not as_json:
        show(teardown, as_json=False)
    return teardown.cost_usd
