"""`gpuctl results RUN`: the numbers of a run."""

import typer

from cli.logs import RunArgument
from cli.plan import JsonOption
from cli.session import session


def results(context: typer.Context, run: RunArgument, as_json: JsonOption = False) -> None:
    """Show a run's status, its transport, and the nccl-tests tables that it printed."""
    from cli.tables import table_lines, transport_lines
    from cli.terminal import say, say_json
    from engine.history import History
    from engine.record import recorded_events

    runs = session(context).state / "runs"
    with History(runs) as history:
        entry = history.find(run)
        tables = history.tables(entry.run_id)
        findings = history.findings(entry.run_id)
    if as_json:
        value = entry.model_dump(mode="json")
        value["findings"] = [one.model_dump(mode="json") for one in findings]
        value["tables"] = [table.model_dump(mode="json") for table in tables]
        say_json(value)
        return
    started = next(recorded_events(runs, entry.run_id), None)
    names = [node.name for node in getattr(started, "nodes", ())]
    names += [f"node{rank}" for rank in range(len(names), entry.nodes)]
    code = "" if entry.exit_code is None else f", exit code {entry.exit_code}"
    reason = f": {entry.reason}" if entry.reason and entry.status != "done" else ""
    say(f"Run {entry.run_id}: {entry.status}{code}{reason}")
    say("\n".join(transport_lines(findings, names)))
    for table in tables:
        say("\n" + "\n".join(table_lines(table, names[table.facts.rank])))
    if not tables:
        say("It printed no nccl-tests table.")
