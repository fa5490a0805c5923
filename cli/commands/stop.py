"""`gpuctl stop RUN`: stop the run on every node."""

import typer

from cli.arguments import RunArgument
from cli.options import chosen_target, output


def stop(context: typer.Context, run: RunArgument) -> None:
    """Stop a run gracefully on all its nodes.

    The cluster stays, unless the run says `on_stop: destroy`.

    $ gpuctl stop nccl-tests
    """
    import asyncio

    from cli.known_runs import known_run
    from cli.render.run import verdict
    from config.errors import InputError
    from engine.session.session import stop as stop_run
    from provision.records.record import load_inventory

    here, out = chosen_target(context), output(context)
    runs = here.state / "runs"
    entry = known_run(here, run, out)
    if entry.is_over:
        raise InputError(f"run {entry.run_id} is over ({entry.status})", "see `gpuctl ps`")
    inventory = load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    result = asyncio.run(stop_run(entry.run_id, inventory, runs))
    if entry.on_stop == "destroy":
        from cli.run_end import destroy, ending, removable, report_teardown

        # A client that follows the run removes the cluster too.
        with (
            ending(inventory, entry.run_id, out),
            removable(here, entry.run_id, inventory, out) as may_remove,
        ):
            if may_remove:
                report_teardown(destroy(here, entry.run_id, inventory, out), out)
    out.show(result.model_dump(mode="json"), verdict(result))
