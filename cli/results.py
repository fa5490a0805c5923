"""`gpuctl results RUN`: the numbers of a run."""

import typer

from cli.arguments import LatestRunArgument
from cli.logs import chosen_run
from cli.options import output, session


def results(context: typer.Context, run: LatestRunArgument = None) -> None:
    """Show a run's status, its transport, and its nccl-tests tables.

    $ gpuctl results
    $ gpuctl results nccl-tests --json
    """
    from cli.tables import table_lines, transport_lines
    from engine.history import History
    from engine.record import recorded_events

    runs, out = session(context).state / "runs", output(context)
    entry = chosen_run(run, runs, out)
    with History(runs) as history:
        tables = history.tables(entry.run_id)
        findings = history.findings(entry.run_id)
    value = entry.model_dump(mode="json")
    value["findings"] = [one.model_dump(mode="json") for one in findings]
    value["tables"] = [table.model_dump(mode="json") for table in tables]
    started = next(recorded_events(runs, entry.run_id), None)
    names = [node.name for node in getattr(started, "nodes", ())]
    names += [f"node{rank}" for rank in range(len(names), entry.nodes)]
    code = "" if entry.exit_code is None else f", exit code {entry.exit_code}"
    reason = f": {entry.reason}" if entry.reason and entry.status != "done" else ""
    lines = [f"Run {entry.run_id}: {entry.status}{code}{reason}", *transport_lines(findings, names)]
    for table in tables:
        lines += ["", *table_lines(table, names[table.facts.rank], out)]
    out.show(value, lines if tables else [*lines, "It printed no nccl-tests table."])
