"""`gpuctl results RUN`: the numbers of a run."""

from typing import TYPE_CHECKING

import typer

from cli.arguments import LatestRunArgument
from cli.logs import chosen_run
from cli.options import output, session

if TYPE_CHECKING:
    from collections.abc import Iterator


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

    def lines() -> "Iterator[str]":
        code = "" if entry.exit_code is None else f", exit code {entry.exit_code}"
        reason = f": {entry.reason}" if entry.reason and entry.status != "done" else ""
        yield f"Run {entry.run_id}: {entry.status}{code}{reason}"
        yield from transport_lines(findings, names)
        for table in tables:
            yield ""
            yield from table_lines(table, names[table.facts.rank], out)
        if not tables:
            yield "It printed no nccl-tests table."

    out.show(value, lines())
