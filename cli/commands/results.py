"""`gpuctl results RUN`: the numbers of a run."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import LatestRunArgument
from cli.known_runs import chosen_run
from cli.options import chosen_target, output
from config.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.output import Output
    from engine.record.history import KeptFinding, RunRecord
    from engine.record.nccl_tests import Table


def results(
    context: typer.Context,
    run: LatestRunArgument = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="BEFORE AFTER", help="Compare these two runs."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare the run with this baseline.")
    ] = None,
    keep_baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep the run as the baseline NAME.")
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the tables as CSV, a line for each half of a row.")
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the bandwidths in the terminal.")
    ] = False,
) -> None:
    """Show a run's transport and nccl-tests tables, or compare runs.

    $ gpuctl results
    $ gpuctl results nccl-tests --json
    $ gpuctl results --compare nccl-tests-4f2a1c nccl-tests-e54e00
    """
    here, out = chosen_target(context), output(context)
    runs = here.state / "runs"
    _require_one(
        {"--compare": compare, "--baseline": baseline, "--keep-baseline": keep_baseline}
        | {"--csv": csv, "--plot": plot, "--json": (csv or plot) and out.as_json}
    )
    if compare and run is not None:
        raise InputError("--compare names both runs", f"leave {run} out")
    entry = chosen_run(here, compare[1] if compare else run, out)
    if compare or baseline is not None:
        before = chosen_run(here, compare[0], out) if compare else _baseline(baseline or "", runs)
        _compare(before, entry, runs, out)
    elif keep_baseline is not None:
        _keep(keep_baseline, entry, runs, out)
    elif csv:
        from cli.render.tables import csv_text

        out.say(csv_text(entry.run_id, _tables(entry, runs)))
    elif plot:
        from cli.render.plot import plot_lines

        lines = plot_lines(_tables(entry, runs))
        out.say("\n".join(lines).lstrip("\n") or "It printed no nccl-tests table.")
    else:
        _show(entry, runs, out)


def _require_one(options: "dict[str, object]") -> None:
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", "leave one of them out")


def _tables(entry: "RunRecord", runs: "Path") -> "tuple[Table, ...]":
    from engine.record.history import History

    with History(runs) as history:
        return history.tables(entry.run_id)


def _baseline(name: str, runs: "Path") -> "RunRecord":
    from engine.record.history import History

    with History(runs) as history:
        return history.baseline(name)


def _compare(before: "RunRecord", after: "RunRecord", runs: "Path", out: "Output") -> None:
    """Show the comparison of two runs, of which both must have tables."""
    from cli.render.comparison import comparison_document, comparison_lines
    from engine.analysis.comparison import compare

    of_runs = []
    for entry in (before, after):
        of_runs.append(_tables(entry, runs))
        if not of_runs[-1]:
            raise InputError(
                f"run {entry.run_id} printed no nccl-tests table", "`gpuctl ps` lists other runs"
            )
    found = compare(*of_runs)
    both = (before, after)
    out.show(comparison_document(both, found), comparison_lines(both, found, out))


def _keep(name: str, entry: "RunRecord", runs: "Path", out: "Output") -> None:
    """Keep the run as a baseline. Raise InputError if later runs cannot be measured against it."""
    from engine.record.history import History

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise InputError(
            f"'{name}' cannot be a baseline's name",
            "use up to 63 letters, digits, dots, dashes and underscores; begin with a letter or"
            " digit",
        )
    if entry.status != "done" or not _tables(entry, runs):
        why = "printed no nccl-tests table" if entry.status == "done" else f"is {entry.status}"
        raise InputError(
            f"run {entry.run_id} {why}: it cannot be a baseline",
            "keep a run that is done and has tables; `gpuctl ps` lists the runs",
        )
    with History(runs) as history:
        history.keep_baseline(name, entry.run_id)
    document = {"baseline": name, "run_id": entry.run_id}
    out.show(document, [f"Baseline {name} is run {entry.run_id}."])


def _show(entry: "RunRecord", runs: "Path", out: "Output") -> None:
    from engine.record.history import History
    from engine.record.journal_copy import recorded_events

    with History(runs) as history:
        tables = history.tables(entry.run_id)
        findings = history.findings(entry.run_id)
    value = entry.model_dump(mode="json")
    value["findings"] = [finding.model_dump(mode="json") for finding in findings]
    value["tables"] = [table.model_dump(mode="json") for table in tables]
    started = next(recorded_events(runs, entry.run_id), None)
    names = [node.name for node in getattr(started, "nodes", ())]
    names += [f"node{rank}" for rank in range(len(names), entry.nodes)]
    out.show(value, _lines(entry, tables, findings, names, out))


def _lines(
    entry: "RunRecord",
    tables: "tuple[Table, ...]",
    findings: "tuple[KeptFinding, ...]",
    names: "list[str]",
    out: "Output",
) -> "Iterator[str]":
    from cli.render.run import followed_lines
    from cli.render.tables import table_lines, transport_lines

    code = "" if entry.exit_code is None else f", exit code {entry.exit_code}"
    reason = f": {entry.reason}" if entry.reason and entry.status != "done" else ""
    tries = f" after {entry.attempts} attempts" if entry.attempts > 1 else ""
    yield f"Run {entry.run_id}: {entry.status}{tries}{code}{reason}"
    yield from followed_lines(entry.followed)
    yield from transport_lines(findings, names)
    for table in tables:
        yield ""
        yield from table_lines(table, names[table.facts.rank], out)
    if not tables:
        yield "It printed no nccl-tests table."
