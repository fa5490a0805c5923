"""`gpuctl stop RUN`: the run is over on every node."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.logs import RunArgument
from cli.plan import JsonOption
from cli.session import session

if TYPE_CHECKING:
    from engine.history import RunRecord
    from engine.result import RunResult
    from nodes.inventory import Inventory


def stop(context: typer.Context, run: RunArgument, as_json: JsonOption = False) -> None:
    """Stop a run gracefully on all its nodes; the cluster stays, unless the run says destroy."""
    from cli.run_view import verdict
    from cli.terminal import say, say_json
    from config.errors import InputError
    from engine.history import History
    from provision.record import load_inventory

    here = session(context)
    runs = here.state / "runs"
    with History(runs) as history:
        entry = history.find(run)
    if entry.is_over:
        raise InputError(f"run {entry.run_id} is over ({entry.status})", "see `gpuctl ps`")
    inventory = load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    result = asyncio.run(_stop(entry, inventory, runs))
    if entry.on_stop == "destroy":
        from cli.run import destroy

        destroy(here, entry.cluster, as_json)
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say("\n".join(verdict(result)))


async def _stop(entry: "RunRecord", inventory: "Inventory", runs: Path) -> "RunResult":
    from engine.session import acknowledge, stop

    result = await stop(entry.run_id, inventory, runs)
    if entry.on_stop == "destroy":
        # the fleet is destroyed from here: its nodes need not power off by themselves
        await acknowledge(entry.run_id, inventory)
    return result
