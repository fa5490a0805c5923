"""`gpuctl results RUN`: the numbers of a run."""

import typer

from cli.logs import RunArgument
from cli.plan import JsonOption
from cli.session import session


def results(context: typer.Context, run: RunArgument, as_json: JsonOption = False) -> None:
    """Show the nccl-tests rows that a run printed."""
    from cli.run_view import table
    from cli.terminal import say, say_json
    from engine.history import History

    with History(session(context).state / "runs") as history:
        entry = history.find(run)
        rows = history.rows(entry.run_id)
    if as_json:
        value = entry.model_dump(mode="json")
        value["rows"] = [row.model_dump(mode="json") for row in rows]
        say_json(value)
    elif rows:
        say("\n".join(table(rows)))
    else:
        say(f"Run {entry.run_id} printed no nccl-tests table.")
