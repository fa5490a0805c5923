"""`gpuctl run FILE`: run a job, follow it live, then keep or destroy the cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.complete import clusters
from cli.options import RuntimesOption, SetOption, chosen_target, output
from config.errors import GpuctlError

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from cli.chosen_target import ChosenTarget
    from cli.output import Output
    from config.run.run_file import Run
    from config.target import Target
    from engine.code import Tree
    from engine.events import Event
    from engine.launch_plan import LaunchPlan
    from engine.result import RunResult
    from nodes.inventory import Inventory
    from provision.down import Teardown


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
) -> None:
    """Run a job on a cluster and follow it to its end.

    The exit code is that of the job; 125 means that gpuctl itself failed.

    $ gpuctl run train.yaml
    $ gpuctl run train.yaml --nodes 4 --env LR=0.1 --on-stop destroy
    """
    from config.loading.load import load_run
    from config.loading.overrides import Overrides
    from config.manifests.given import Given

    here, out = chosen_target(context), output(context)
    given = Given(tuple(set_ or ()), runtimes)
    overrides = Overrides(tuple(env or ()), nodes, given)
    wanted = load_run(file, overrides, out.complain, is_strict=strict)
    wanted = _changed(wanted, on_stop, no_image=no_image)
    if inventory is not None and not dry_run:
        from config.errors import InputError

        raise InputError("--inventory is for plans alone", "add --dry-run, or name a --cluster")
    there = _read_inventory(inventory) if inventory else _inventory(here, cluster, wanted)
    from cli.code import confirm_paths, read_code
    from engine.launch_plan import launch_plan, new_run_id

    tree = read_code(wanted, file)
    plan = launch_plan(wanted, there, new_run_id(wanted.name), tree)
    if plan.sweep is not None and here.lab is not None:
        sweep = plan.sweep.model_copy(update={"is_stand_in": True})
        plan = plan.model_copy(update={"sweep": sweep})
    for text in plan.warnings:
        out.warn(text)
    if dry_run:
        from cli.launch_text import show

        show(plan, out, tree)
        return
    _confirm_credentials(plan, secret or (), out)
    confirm_paths(wanted, file, send or (), out)
    raise typer.Exit(_run(here, wanted, plan, tree, there, out))


def _confirm_credentials(plan: "LaunchPlan", allowed: "Collection[str]", out: "Output") -> None:
    """Ask before a run takes credentials from the environment; InputError if refused."""
    from engine.secrets import credentials

    for name in credentials(plan):
        if name not in allowed:
            question = f"{plan.name} takes {name} from your environment. Give it to the job?"
            out.confirm(question, option=f"--secret {name}")


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


def _read_inventory(path: Path) -> "Inventory":
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


def _inventory(here: "ChosenTarget", name: str | None, wanted: "Run") -> "Inventory":
    """Return the inventory of the named cluster, by default of the run file's or the only one."""
    from config.errors import InputError
    from provision.records.record import load_inventory, records

    here.require_lab()
    if name is None:
        known = [record.name for record in records(here.remembered())]
        named = [one for one in wanted.requires.clusters if one in known] if wanted.requires else []
        known = named[:1] or known
        if len(known) != 1:
            which = f"there are several: {', '.join(known)}" if known else "there is no cluster"
            hint = "name one with --cluster" if known else "make one with `gpuctl up FILE`"
            raise InputError(which, hint)
        name = known[0]
    return load_inventory(name, here.cluster_target(name))


def _run(
    here: "ChosenTarget",
    wanted: "Run",
    plan: "LaunchPlan",
    tree: "Tree | None",
    there: "Inventory",
    out: "Output",
) -> int:
    """Run the job, then keep or destroy the cluster; return the job's exit code."""
    from cli.code import fetch, send_code
    from cli.forwarded_ports import forwarded
    from cli.lab_evidence import LabEvidence
    from cli.run_view import RunView
    from engine.journal_copy import evidence_folder
    from engine.secrets import resolve
    from engine.session import run as run_plan

    target = here.cluster_target(there.cluster)
    values = resolve(plan, wanted)
    if plan.on_stop == "destroy":
        _check_account(there.cluster, target)
    send_code(plan, tree, there, out)
    plan = _pull_image(plan, there, values, out)
    view = RunView(plan, out)
    if plan.dashboard:
        out.note(_dashboard(here, plan))
    folder = evidence_folder(target.runs, plan.run_id)
    lab = LabEvidence(here.lab, there, folder) if here.lab else None

    def see(event: "Event") -> None:
        view.event(event)
        if lab is not None:
            lab.see(event)

    _remove_old_logs(target.runs, out)
    running = run_plan(plan, there, target.runs, see, values)
    with forwarded(wanted.ports, there, plan.nodes[0].name, out):
        result = _follow(here, plan, there, running, out)
    try:
        outputs = fetch(plan, there, target.runs, out)
        if lab is not None:
            lab.wait()
    finally:
        # Before the result is printed: printing fails if the reader has gone.
        gone = _destroy_if_asked(here, plan, there, out)
    evidence = folder if folder.exists() else None
    view.end(result, evidence)
    cost = _report_removal(gone, target.runs, plan.run_id, out)
    if out.as_json:
        view.end_json(result, cost, evidence, outputs)
    return result.exit_code


def _report_removal(
    gone: "Teardown | GpuctlError | None", runs: Path, run_id: str, out: "Output"
) -> float | None:
    """Print and record the removal of the cluster; return its cost, or raise its error."""
    if isinstance(gone, GpuctlError):
        raise gone
    if gone is None:
        return None
    report_teardown(gone, out)
    _record_cost(runs, run_id, gone.cost_usd)
    return gone.cost_usd


def _remove_old_logs(runs: Path, out: "Output") -> None:
    """Remove logs of earlier runs beyond the budget; an error is only a warning."""
    from cli.terminal import size
    from engine.history import History
    from engine.journal_budget import remove, runs_over_budget, stored_runs

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


def _follow(
    here: "ChosenTarget",
    plan: "LaunchPlan",
    there: "Inventory",
    running: "Coroutine[Any, Any, RunResult]",
    out: "Output",
) -> "RunResult":
    """Follow the run to its end. If that fails, still remove a cluster that was to be destroyed."""
    import asyncio

    from cli.code import fetch
    from config.errors import Interrupted
    from engine.session import ClusterBusy, RunGoesOn, RunLost

    try:
        return asyncio.run(running)
    except (ClusterBusy, RunGoesOn):
        raise  # a run still uses the cluster: another one, or this one, which goes on
    except BaseException as error:
        if isinstance(error, (RunLost, Interrupted, KeyboardInterrupt)):  # its job has begun
            fetch(plan, there, here.cluster_target(there.cluster).runs, out)
        if plan.on_stop == "destroy":
            # also after an error of gpuctl or a second Ctrl-C: the cluster must not bill on
            out.warn(str(error) or "interrupted")
            report_teardown(destroy(here, plan.run_id, there, out), out)
        raise


def _check_account(cluster: str, target: "Target") -> None:
    """Raise InputError if these credentials could not remove the cluster at the end."""
    from provision.aws.account import caller, check_account
    from provision.records.record import read

    record = read(cluster, target)
    if record is not None:
        check_account(cluster, record.account, caller(target).account)


def _destroy_if_asked(
    here: "ChosenTarget", plan: "LaunchPlan", there: "Inventory", out: "Output"
) -> "Teardown | GpuctlError | None":
    """Remove the cluster if the run says so; return what was removed, or the error."""
    if plan.on_stop != "destroy":
        return None
    try:
        return destroy(here, plan.run_id, there, out)
    except GpuctlError as error:
        return error


def _pull_image(
    plan: "LaunchPlan", there: "Inventory", secrets: dict[str, str], out: "Output"
) -> "LaunchPlan":
    """Pull the image on all nodes; return the plan with it pinned. Report the image's digest."""
    if plan.image is None:
        return plan
    import asyncio

    from engine.container_images import pull

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
    lab = "".join(f" {word}" for word in (here.lab.options if here.lab else ()))
    tunnel = f"gpuctl{lab} ssh {plan.cluster} {plan.nodes[0].name} -- -N -L {port}:{address}"
    return f"-- dashboard {plan.dashboard}: `{tunnel}`, then open http://localhost:{port}"


def _record_cost(runs: Path, run_id: str, cost: float | None) -> None:
    from engine.history import History

    if cost is not None:
        with History(runs) as history:
            history.set_cost(run_id, cost)


def destroy(here: "ChosenTarget", run_id: str, there: "Inventory", out: "Output") -> "Teardown":
    """Remove the cluster of a run that is over.

    GpuctlError when that fails. Then the nodes power off by themselves, and the hint says so.
    """
    from cli.down import remove
    from engine.session import prevent_power_off

    try:
        with prevent_power_off(run_id, there), out.progress() as view:
            return remove(here, there.cluster, view)
    except GpuctlError as error:
        rest = "its nodes power off by themselves within 3 minutes, other resources bill on"
        error.hint = f"{error.hint}; {rest}" if error.hint else rest
        raise


def report_teardown(teardown: "Teardown", out: "Output") -> None:
    """Print the removed resources and their cost; as JSON the run's document has them."""
    from cli.down import show

    if not out.as_json:
        show(teardown, out)
