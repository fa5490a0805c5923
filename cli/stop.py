"""`gpuctl stop RUN`: the run is over on every node."""

import asyncio

import typer

from cli.logs import RunArgument
from cli.plan import JsonOption
from cli.session import session


def stop(context: typer.Context, run: RunArgument, as_json: JsonOption = False) -> None:
    """Stop a run gracefully on all its nodes; the cluster stays, unless the run says destroy."""
    from cli.run_view import verdict
    from cli.terminal import say, say_json
    from config.errors import InputError
    from engine.history import History
    from engine.session import stop as stop_run
    from provision.records.record import load_inventory

    here = session(context)
    runs = here.state / "runs"
    with History(runs) as history:
        entry = history.find(run)
    if entry.is_over:
        raise InputError(f"run {entry.run_id} is over ({entry.status})", "see `gpuctl ps`")
    inventory = load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    result = asyncio.run(stop_run(entry.run_id, inventory, runs))
    if entry.on_stop == "destroy":
        from cli.run import destroy, tell

        tell(destroy(here, entry.run_id, inventory, as_json), as_json)
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say("\n".join(verdict(result)))
