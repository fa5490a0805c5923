"""`gpuctl up FILE`: create or change the cluster until it is ready for a run."""

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ReplaceOption
from cli.lease import ask_for_lease
from cli.options import (
    RefreshOption,
    RuntimesOption,
    SetOption,
    YesOption,
    chosen_target,
    output,
)
from cli.render import hosts as render_hosts
from cli.render import plan as render
from cli.render import proposal as proposal_text
from config.cluster import hosts_file
from config.command_text import command_text
from config.errors import GpuctlError, InputError
from config.loading import load, overrides
from config.quantities import counted, money
from operations import first_files, hosts, lease, proposal, rent, status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cli.output import Output
    from config.cluster.hosts_file import HostsCluster
    from operations.chosen_target import ChosenTarget
    from operations.rent import FleetPlan, Inventory


_File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The cluster file; with --for a new one.")
]
_For = Annotated[
    Path | None,
    typer.Option(
        "--for", metavar="RUN_FILE", help="Propose a cluster file for this run file or manifest."
    ),
]


def up(
    context: typer.Context,
    file: _File = None,
    for_: _For = None,
    set_: SetOption = None,
    runtimes: RuntimesOption = None,
    yes: YesOption = False,
    refresh: RefreshOption = False,
    replace: ReplaceOption = None,
    no_lease: Annotated[
        bool, typer.Option("--no-lease", help="Without `lifetime`: it ends only with `down`.")
    ] = False,
    accept_new_host_keys: Annotated[
        bool,
        typer.Option(
            "--accept-new-host-keys", help="With `hosts`: accept unknown host keys, and pin them."
        ),
    ] = False,
) -> None:
    """Create or change a cluster, and wait until it is ready.

    With --for gpuctl proposes the cluster that a run needs, with its cost. With a FILE it writes
    the proposal there and goes on as `up FILE`; without one it prints it and creates nothing.

    With `hosts` in the FILE the machines are yours: gpuctl shows what it writes on them, and asks.

    $ gpuctl up cluster.yaml
    $ gpuctl up --for train.yaml
    $ gpuctl up cluster.yaml --for train.yaml
    """
    chosen, out = chosen_target(context), output(context)
    if for_ is not None:
        given = overrides.Substitutions(tuple(set_ or ()), runtimes)
        if file is None and yes:
            hint = command_text("gpuctl up cluster.yaml --for {} --yes", for_)
            raise InputError("--yes needs a name for the cluster file that --for proposes", hint)
        proposed = proposal.propose(chosen, for_, substitutions=given, warn=out.complain)
        text = proposal_text.cluster_file(proposed, for_)
        if file is None:
            out.show(proposal_text.proposal_json(proposed), [text.rstrip("\n")])
            return
        up_file = command_text("gpuctl up {}", file)
        hint = f"name a new file, or bring up what it describes: {up_file}"
        first_files.write_new_files({file: text}, "--for writes a new cluster file", hint)
        out.note(text.rstrip("\n"))
        out.note(f"-- written to {file}")
    if file is None:
        context.fail("Missing argument 'FILE'.")
    cluster = load.load_any_cluster(file, out.complain)
    if isinstance(cluster, hosts_file.HostsCluster):
        options = {"--refresh": refresh, "--replace": replace, "--no-lease": no_lease}
        _refuse(options, "is for clusters that gpuctl rents, and this file has `hosts`")
        _up_hosts(chosen, cluster, out, accept=accept_new_host_keys, yes=yes)
        return
    why = "is for files with `hosts`: AWS gives the host keys of rented machines"
    _refuse({"--accept-new-host-keys": accept_new_host_keys}, why)
    cluster = (
        lease.without_lease(cluster)
        if no_lease
        else ask_for_lease(chosen, lease.with_lifetime(chosen, cluster), out, yes=yes)
    )
    with out.progress() as view:
        fleet_plan = rent.plan(
            chosen, cluster, refresh=refresh, replace=replace or (), watcher=view
        )
    if not out.as_json and not (out.is_quiet and yes):  # nobody is asked about it
        render.show_plan(fleet_plan, out)
    if not yes:
        with out.progress() as view:
            rent.check(chosen, fleet_plan, watcher=view)  # before a person is asked
        if not fleet_plan.plan.is_empty:
            out.confirm(f"Create or change cluster {cluster.name}?")
    with out.progress() as view:
        inventory = rent.up(chosen, fleet_plan, watcher=view)
    _show_ready(chosen, inventory, fleet_plan, out)


def _refuse(options: "Mapping[str, object]", why: str) -> None:
    """Raise InputError for the first option that was given."""
    for option, value in options.items():
        if value:
            raise InputError(f"{option} {why}", "leave it out")


def _up_hosts(
    chosen: "ChosenTarget", cluster: "HostsCluster", out: "Output", *, accept: bool, yes: bool
) -> None:
    with out.progress() as view:
        plan = hosts.plan(chosen, cluster, accept_new_host_keys=accept, watcher=view)
    if not out.as_json and not (out.is_quiet and yes):  # nobody is asked about it
        out.show(render_hosts.plan_json(plan), render_hosts.plan_lines(plan))
    machines = counted(len(plan.hosts), "machine")
    keys = ", and accept their new host keys" if plan.accepted else ""
    out.confirm(f"Write this on {machines}{keys}?", yes)
    with out.progress() as view:
        inventory = hosts.up(chosen, plan, watcher=view)
    lines = render_hosts.ready_lines(inventory, out.program)
    out.show(inventory.model_dump(mode="json"), lines)


def _show_ready(
    chosen: "ChosenTarget", inventory: "Inventory", plan: "FleetPlan", out: "Output"
) -> None:
    steps = () if out.as_json else _next_steps(chosen, inventory, plan, out)
    out.show(inventory.model_dump(mode="json"), (*_lines(inventory), *steps))


def _next_steps(
    chosen: "ChosenTarget", inventory: "Inventory", plan: "FleetPlan", out: "Output"
) -> "Iterator[str]":
    """Yield what the cluster costs and until when, and which commands come next."""
    name, program = inventory.cluster, out.program
    rate = "an unknown price" if plan.hourly_usd is None else money(plan.hourly_usd)
    yield f"It costs {rate} per hour {_until(chosen, plan, name)}."
    yield "Next:"
    yield f"  {program} run RUN_FILE --cluster {name}"
    yield f"  {program} ssh {name}"
    yield f"  {program} down {name}"


def _until(chosen: "ChosenTarget", plan: "FleetPlan", name: str) -> str:
    if plan.resolved.cluster.lifetime is None:
        return f"until {command_text('gpuctl down {}', name)}: it has no lease"
    with suppress(GpuctlError):  # the cluster is ready, whatever AWS answers now
        (known, *_) = status.cluster(chosen, name)
        if known.ends is not None:
            ends = datetime.fromisoformat(known.ends)
            return f"until its lease ends at {ends:%Y-%m-%d %H:%M} UTC"
    return "until its lease ends; `gpuctl status` shows when"


def _lines(inventory: "Inventory") -> "Iterator[str]":
    way = f": bastion {inventory.bastion.address}" if inventory.bastion else ""
    yield f"\nCluster {inventory.cluster} is ready{way}"
    for gone in inventory.replaced:
        yield f"  {gone.name}: {gone.instance_id} was replaced: {gone.cause}"
    for node in inventory.nodes:
        public = f"  {node.public_ip}" if node.public_ip else ""
        yield f"  rank {node.rank}  {node.name}  {node.private_ip}{public}  {node.instance_id}"
