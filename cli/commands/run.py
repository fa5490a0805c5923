"""`gpuctl run FILE`: run a job, follow it live, then keep or destroy the cluster."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cli.complete import clusters
from cli.interrupts import OnInterruptOption
from cli.interrupts import on_interrupt as answer_to
from cli.options import (
    FoldOption,
    OutputsOption,
    RuntimesOption,
    SetOption,
    chosen_target,
    output,
)
from cli.render import followed_run, launch_plan
from cli.render import run as render
from config.errors import InputError
from config.folders import user_path
from config.loading import load, overrides
from operations import prepared_run, runs

if TYPE_CHECKING:
    from cli.output import Output


_File = Annotated[Path, typer.Argument(metavar="FILE", help="The run file, or a manifest.")]
_Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        metavar="CLUSTER",
        help="The cluster; by default the only one. With --dry-run also a cluster file.",
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
    outputs: OutputsOption = None,
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
    $ gpuctl run train.yaml --dry-run --cluster cluster.yaml
    $ gpuctl run train.yaml --detach --outputs /data/results
    $ gpuctl run train.yaml --nodes 4 --env LR=0.1 --on-stop destroy
    """
    chosen, out = chosen_target(context), output(context)
    given = overrides.Overrides(
        tuple(env or ()), nodes, overrides.Substitutions(tuple(set_ or ()), runtimes)
    )
    loaded = load.load_run(file, given, out.complain, is_strict=strict)
    if on_stop not in (None, "keep", "destroy"):
        raise InputError(f"--on-stop is '{on_stop}'", "keep and destroy are allowed")
    if inventory is not None and not dry_run:
        raise InputError("--inventory is for plans alone", "add --dry-run, or name a --cluster")
    prepared = prepared_run.prepare(
        chosen,
        loaded,
        file,
        cluster=cluster,
        inventory=None if inventory is None else prepared_run.saved_inventory(inventory),
        on_stop=cast("prepared_run.OnStop | None", on_stop),
        no_image=no_image,
        outputs=outputs,
        queue=queue,
        preview=dry_run,
    )
    for text in prepared.warnings:
        out.warn(text)
    answer = answer_to(on_interrupt, prepared.plan.run_id, out)
    if dry_run:
        launch_plan.show(prepared.plan, out, prepared.tree, prepared.outputs)
        return
    _confirm(prepared, secret or (), send or (), out)
    with out.progress() as progress:
        ready = runs.make_ready(
            chosen,
            prepared,
            check_nodes=not no_health,
            forwards_ports=not detach,
            watcher=progress,
        )
    plan, on_removed = ready.plan, followed_run.teardown_view(out)
    if detach:
        with out.progress() as progress:
            runs.start(chosen, ready, on_removed=on_removed, watcher=progress)
        followed_run.show_detached(chosen, plan, out)
        return
    view = render.RunView(plan, out, ready.inventory, folds)
    code = followed_run.follow_to_end(
        chosen,
        plan,
        view,
        out,
        lambda watcher: runs.follow(
            chosen,
            ready,
            on_event=view.event,
            on_interrupt=answer,
            on_removed=on_removed,
            watcher=watcher,
        ),
    )
    raise typer.Exit(code)


def _confirm(
    prepared: "prepared_run.PreparedRun",
    secrets: Collection[str],
    paths: Collection[str],
    out: "Output",
) -> None:
    """Ask before a run takes credentials, or files that the person may not have meant.

    InputError if they refuse.
    """
    name = prepared.plan.name
    for credential in prepared.credentials:
        if credential.name not in secrets:
            out.confirm(
                f"{name} takes {credential.name} from your environment."
                f" Give it to {credential.recipient}?",
                option=f"--secret {credential.name}",
            )
    allowed = {user_path(text).resolve() for text in paths}
    for path in prepared.outside_paths:
        if path not in allowed:
            question = f"{name} sends {path}, which is not in the run file's folder. Send it?"
            out.confirm(question, option=f"--send {path}")
