"""`gpuctl run FILE`: run a job, follow it live, then keep or destroy the cluster."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.complete import clusters
from cli.interrupts import OnInterruptOption
from cli.options import FoldOption, RuntimesOption, SetOption, chosen_target, output
from config.errors import GpuctlError

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from cli.output import Output
    from cli.run_client import Life
    from config.run.run_file import Run
    from engine.contract.plan import LaunchPlan
    from engine.plan.source_tree import Tree
    from engine.record.result import RunResult
    from engine.session.following import OnEvent
    from engine.session.session import OnInterrupt
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget


_File = Annotated[Path, typer.Argument(metavar="FILE", help="The run file, or a manifest.")]
_Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        metavar="CLUSTER",
        help="The cluster; by default the only one.",
        autocompletion=clusters,
    ),
]
_Env = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a variable; overrides the file.")
]
_Nodes = Annotated[
    str | None, typer.Option(metavar="N", help="The number of nodes; overrides the file.")
]
_OnStop = Annotated[
    str | None,
    typer.Option(
        metavar="keep|destroy", help="What to do with the cluster; by default as the file says."
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the launch plan, run nothing.")]
_Inventory = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --dry-run: a saved inventory instead of a cluster."),
]
_NoHealth = Annotated[
    bool, typer.Option("--no-health", help="Start without a check of the nodes before.")
]
_NoImage = Annotated[
    bool, typer.Option("--no-image", help="Run on the nodes themselves, not in the file's image.")
]
_Secret = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Allow the run this credential of your environment."),
]

_Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse unknown keys in dstack's files too.")
]

_Send = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Allow the run this path outside its file's folder."),
]

_Queue = Annotated[
    bool, typer.Option("--queue", help="Wait on the cluster while other runs have its nodes.")
]

_Detach = Annotated[
    bool,
    typer.Option("--detach", "-d", help="Start the run, print how to come back to it, and end."),
]


def run(
    context: typer.Context,
    file: _File,
    cluster: _Cluster = None,
    env: _Env = None,
    nodes: _Nodes = None,
    set_: SetOption = None,
    runtimes: RuntimesOption = None,
    on_stop: _OnStop = None,
    dry_run: _DryRun = False,
    inventory: _Inventory = None,
    no_image: _NoImage = False,
    secret: _Secret = None,
    strict: _Strict = False,
    send: _Send = None,
    queue: _Queue = False,
    detach: _Detach = False,
    folds: FoldOption = False,
    on_interrupt: OnInterruptOption = "ask",
    no_health: _NoHealth = False,
) -> None:
    """Run a job on a cluster and follow it to its end.

    The exit code is that of the job; 125 means that gpuctl itself failed. With --detach it ends
    once the run has started. Ctrl-C asks on a terminal whether to stop the run or to leave it
    alone; Ctrl-C again aborts it. Without a terminal Ctrl-C stops the run.

    $ gpuctl run train.yaml
    $ gpuctl run train.yaml --detach
    $ gpuctl run train.yaml --nodes 4 --env LR=0.1 --on-stop destroy
    """
    from cli.code import read_code
    from cli.healing import Healing, preparation
    from cli.interrupts import on_interrupt as answer_to
    from cli.render.launch_plan import show
    from cli.run_client import RunClient
    from config.loading.load import load_run
    from config.loading.overrides import Overrides
    from config.loading.substitutions import Substitutions

    here, out = chosen_target(context), output(context)
    overrides = Overrides(tuple(env or ()), nodes, Substitutions(tuple(set_ or ()), runtimes))
    wanted = load_run(file, overrides, out.complain, is_strict=strict)
    wanted = _changed(wanted, on_stop, no_image=no_image)
    there = _saved(inventory, dry_run) if inventory else _inventory(here, cluster, wanted, file)
    tree = read_code(wanted, file)
    plan = _completed(_plan(wanted, there, tree, dry_run, out), here, queue)
    asked = answer_to(on_interrupt, plan.run_id, out)
    if dry_run:
        show(plan, out, tree)
        return
    _confirm(plan, wanted, file, secret or (), send or (), out)
    plan, values = _prepare(here, wanted, plan, tree, there, out, check=not no_health)
    client, runs = RunClient(here, plan, there, out, folds=folds), here.state / "runs"
    if detach:
        raise typer.Exit(client.leave(_start(plan, there, runs, values)))
    life = _life(plan, there, runs, values, out)
    healing = Healing(here, plan.run_id, there, out, preparation(plan.run_id, out, values))
    raise typer.Exit(client.live(life, asked, healing))


def _plan(
    wanted: "Run", there: "Inventory", tree: "Tree | None", dry_run: bool, out: "Output"
) -> "LaunchPlan":
    """Return the launch plan, on nodes that no other run has; print its warnings."""
    from cli.commands.queue import current_load
    from engine.plan.launch_plan import launch_plan, new_run_id

    load = {} if dry_run else current_load(wanted, there)
    plan = launch_plan(wanted, there, new_run_id(wanted.name), tree, load)
    for text in plan.warnings:
        out.warn(text)
    return plan


def _completed(plan: "LaunchPlan", here: "ChosenTarget", queue: bool) -> "LaunchPlan":
    """Return the plan with whether it waits, and whether its bandwidths are those of a lab."""
    sweep = plan.sweep
    if sweep is not None and here.lab is not None:
        sweep = replace(sweep, is_stand_in=True)
    return replace(plan, sweep=sweep, queue=queue)


def _confirm_credentials(plan: "LaunchPlan", allowed: "Collection[str]", out: "Output") -> None:
    """Ask before a run takes credentials from the environment; InputError if refused."""
    from engine.plan.secrets import credentials, is_notifications_alone

    for name in credentials(plan):
        if name not in allowed:
            to = "its notifications" if is_notifications_alone(plan, name) else "the job"
            question = f"{plan.name} takes {name} from your environment. Give it to {to}?"
            out.confirm(question, option=f"--secret {name}")


def _confirm(
    plan: "LaunchPlan",
    wanted: "Run",
    file: Path,
    secrets: "Collection[str]",
    paths: "Collection[str]",
    out: "Output",
) -> None:
    """Ask before a run takes credentials, or files that the person may not have meant."""
    from cli.code import confirm_paths

    _confirm_credentials(plan, secrets, out)
    confirm_paths(wanted, file, paths, out)


def _changed(wanted: "Run", on_stop: str | None, *, no_image: bool) -> "Run":
    """Return the run with what the command line overrides."""
    from config.errors import InputError

    changes: dict[str, Any] = {}
    if no_image:
        changes |= {"image": None, "registry_auth": None, "privileged": False, "volumes": ()}
    if on_stop is not None:
        if on_stop not in {"keep", "destroy"}:
            raise InputError(f"--on-stop is '{on_stop}'", "keep and destroy are allowed")
        changes["on_stop"] = on_stop
    return wanted.model_copy(update=changes)


def _saved(path: Path, dry_run: bool) -> "Inventory":
    from pydantic import ValidationError

    from config.errors import InputError
    from config.files import read_regular
    from nodes.inventory import Inventory

    if not dry_run:
        raise InputError("--inventory is for plans alone", "add --dry-run, or name a --cluster")
    hint = "save one with `gpuctl up FILE --json` or from the cluster's state folder"
    try:
        return Inventory.model_validate_json(read_regular(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except ValidationError as error:
        raise InputError(f"{path}: is not an inventory", hint) from error


def _inventory(here: "ChosenTarget", name: str | None, wanted: "Run", file: Path) -> "Inventory":
    """Return the inventory of the named cluster, by default of the run file's or the only one."""
    from config.errors import InputError
    from operations.proposal import no_cluster_hint
    from provision.records.record import load_inventory, records

    here.require_lab()
    if name is None:
        known = [record.name for record in records(here.remembered())]
        named = (
            [cluster for cluster in wanted.requires.clusters if cluster in known]
            if wanted.requires
            else []
        )
        known = named[:1] or known
        if len(known) != 1:
            which = f"there are several: {', '.join(known)}" if known else "there is no cluster"
            hint = "name one with --cluster" if known else no_cluster_hint(wanted, file)
            raise InputError(which, hint)
        name = known[0]
    return load_inventory(name, here.cluster_target(name))


def _prepare(
    here: "ChosenTarget",
    wanted: "Run",
    plan: "LaunchPlan",
    tree: "Tree | None",
    there: "Inventory",
    out: "Output",
    *,
    check: bool,
) -> "tuple[LaunchPlan, dict[str, str]]":
    """Send the run's code, and pull its image; return the plan with the image, and the secrets.

    Meanwhile the nodes are checked: NodeError if one is not fit for jobs. Raises StateError first
    if the run could not be recorded.
    """
    from cli.before_run import NodeCheck
    from cli.code import send_code
    from cli.run_end import check_removable
    from engine.plan.secrets import resolve
    from engine.record.history import History

    target = here.cluster_target(there.cluster)
    with History(target.runs) as history:
        history.check_writable()
    values = resolve(plan, wanted)
    if plan.on_stop == "destroy":
        check_removable(there.cluster, target)
    node_check = NodeCheck(plan, there, target) if check else None
    import engine.session  # noqa: F401  it takes a while, in which the nodes answer

    send_code(plan, tree, there, out)
    plan = _pull_image(plan, there, values, out)
    if node_check:
        node_check.finish(out)
    if plan.dashboard:
        out.note(_dashboard(here, plan))
    _remove_old_logs(target.runs, out)
    return plan, values


def _start(
    plan: "LaunchPlan", there: "Inventory", runs: Path, values: dict[str, str]
) -> "Coroutine[None, None, None]":
    """Return what starts the plan and leaves it alone."""
    from engine.session import session

    return session.start(plan, there, runs, values)


def _life(
    plan: "LaunchPlan",
    there: "Inventory",
    runs: Path,
    values: dict[str, str],
    out: "Output",
) -> "Life":
    """Return what runs the plan to its end; the run's ports are forwarded meanwhile."""
    from cli.forwarded_ports import forwarded
    from engine.session import session

    async def run_plan(see: "OnEvent", on: "OnInterrupt") -> "RunResult":
        with forwarded(plan.ports, there, plan.nodes[0].name, out):
            return await session.run(plan, there, runs, see, values, on)

    return run_plan


def _remove_old_logs(runs: Path, out: "Output") -> None:
    """Remove logs of earlier runs beyond the budget; an error is only a warning."""
    from config.quantities import size
    from engine.record.history import History
    from engine.record.journal_budget import remove, runs_over_budget, stored_runs

    with History(runs) as history:
        removed = runs_over_budget(stored_runs(runs, history.runs()))
    try:
        remove(removed)
    except GpuctlError as error:
        out.warn(str(error))
        return
    if removed:
        freed = size(sum(run.size for run in removed))
        which = ", ".join(run.folder.name for run in removed)
        out.note(f"-- logs removed, {freed} freed (30 days and 10 GiB are kept): {which}")


def _pull_image(
    plan: "LaunchPlan", there: "Inventory", secrets: dict[str, str], out: "Output"
) -> "LaunchPlan":
    """Pull the image on all nodes; return the plan with it pinned. Report the image's digest."""
    if plan.image is None:
        return plan
    import asyncio

    from engine.session.container_images import pull

    with out.progress() as view:
        pinned = asyncio.run(pull(plan, there, secrets, view.report))
    assert pinned.image is not None
    out.note(f"-- image {pinned.image.reference}, {pinned.image.digest or pinned.image.id}")
    for text in pinned.warnings[len(plan.warnings) :]:
        out.warn(text)
    return pinned


def _dashboard(here: "ChosenTarget", plan: "LaunchPlan") -> str:
    """Return the dashboard's address and the command for a tunnel: nodes have no open port."""
    address = plan.dashboard.partition("//")[2]
    port = address.rpartition(":")[2]
    tunnel = _tunnel(here, plan, f"{port}:{address}")
    return f"-- dashboard {plan.dashboard}: `{tunnel}`, then open http://localhost:{port}"


def _tunnel(here: "ChosenTarget", plan: "LaunchPlan", ends: str) -> str:
    """Return the command that forwards a port to node 0."""
    lab = "".join(f" {word}" for word in (here.lab.options if here.lab else ()))
    return f"gpuctl{lab} ssh {plan.cluster} {plan.nodes[0].name} -- -N -L {ends}"
