"""`gpuctl ps`: the runs, newest first."""

import typer

from cli.plan import JsonOption
from cli.session import session


def ps(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the runs: where, how they ended, exit code, cost."""
    from cli.terminal import money, say, say_json
    from engine.history import History

    with History(session(context).state / "runs") as history:
        entries = history.runs()
    if as_json:
        say_json([entry.model_dump(mode="json") for entry in entries])
        return
    if not entries:
        say("No run yet.")
        return
    say(f"{'RUN':<28} {'CLUSTER':<16} {'NODES':>5} {'STATUS':<8} {'EXIT':>4} {'COST':>9}  STARTED")
    for entry in entries:
        code = "" if entry.exit_code is None else str(entry.exit_code)
        cost = "" if entry.cost_usd is None else money(entry.cost_usd)
        say(
            f"{entry.run_id:<28} {entry.cluster:<16} {entry.nodes:>5} {entry.status:<8} "
            f"{code:>4} {cost:>9}  {entry.started:%Y-%m-%d %H:%M:%S}"
        )
