"""`gpuctl results RUN`: the numbers of a run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import LatestRunArgument, chosen_run
from cli.options import chosen_target, output
from cli.render import comparison as comparison_text
from cli.render import plot as drawing
from cli.render import run as render
from cli.render import tables
from config.errors import InputError
from operations import results as measured

if TYPE_CHECKING:
    from cli.output import Output


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
    chosen, out = chosen_target(context), output(context)
    _require_one(
        {"--compare": compare, "--baseline": baseline, "--keep-baseline": keep_baseline}
        | {"--csv": csv, "--plot": plot, "--json": (csv or plot) and out.as_json}
    )
    if compare and run is not None:
        raise InputError("--compare names both runs", f"leave {run} out")
    record = chosen_run(chosen, compare[1] if compare else run, out)
    if compare or baseline is not None:
        before = (
            chosen_run(chosen, compare[0], out)
            if compare
            else measured.baseline(chosen, baseline or "")
        )
        comparison = measured.compare(chosen, before, record)
        both = (before, record)
        out.show(
            comparison_text.comparison_document(both, comparison),
            comparison_text.comparison_lines(both, comparison, out),
        )
    elif keep_baseline is not None:
        measured.keep_baseline(chosen, keep_baseline, record)
        document = {"baseline": keep_baseline, "run_id": record.run_id}
        out.show(document, [f"Baseline {keep_baseline} is run {record.run_id}."])
    elif csv:
        out.pass_on(tables.csv_text(record.run_id, measured.tables(chosen, record)))
    elif plot:
        lines = drawing.plot_lines(measured.tables(chosen, record))
        out.say("\n".join(lines).lstrip("\n") or "It printed no nccl-tests table.")
    else:
        _show(measured.results(chosen, record), out)


def _require_one(options: "dict[str, object]") -> None:
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", "leave one of them out")


def _show(results: "measured.RunResults", out: "Output") -> None:
    value = results.record.model_dump(mode="json")
    value["findings"] = [finding.model_dump(mode="json") for finding in results.findings]
    value["tables"] = [table.model_dump(mode="json") for table in results.tables]
    out.show(value, _lines(results, out))


def _lines(results: "measured.RunResults", out: "Output") -> Iterator[str]:
    record = results.record
    code = "" if record.exit_code is None else f", exit code {record.exit_code}"
    reason = f": {record.reason}" if record.reason and record.status != "done" else ""
    tries = f" after {record.attempts} attempts" if record.attempts > 1 else ""
    yield f"Run {record.run_id}: {record.status}{tries}{code}{reason}"
    yield from render.followed_lines(record.followed)
    yield from tables.transport_lines(results.findings, results.node_names)
    for table in results.tables:
        yield ""
        yield from tables.table_lines(table, results.node_names[table.facts.rank], out)
    if not results.tables:
        yield "It printed no nccl-tests table."
