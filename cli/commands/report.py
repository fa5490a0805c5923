"""`gpuctl report RUN…`: what is known of runs, as one page that opens offline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import runs as run_names
from cli.known_runs import chosen_run
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from engine.analysis.report import Report
    from engine.record.history import RunRecord


def report(
    context: typer.Context,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN…",
            help="Ids of runs, or names of their latest; by default the newest run.",
            autocompletion=run_names,
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a picture of the bandwidths."),
    ] = None,
) -> None:
    """Write one HTML page about runs, which opens offline.

    Several runs are drawn in the same charts. A run of a bisect brings the whole bisect.

    $ gpuctl report
    $ gpuctl report nccl-tests-4f2a1c nccl-tests-e54e00 -o both.html
    $ gpuctl report nccl-tests bisect
    """
    from importlib.metadata import version

    import vl_convert

    from cli.render.report import page

    here, out = chosen_target(context), output(context)
    runs = here.state / "runs"
    names: list[str | None] = [*dict.fromkeys(run or [])] or [None]
    entries = [chosen_run(here, name, out) for name in names]
    reports = [_report(entry, runs) for entry in entries]
    pictures = {} if png is None else {png: _picture(reports)}
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    written = {to: page(reports, library, version("gpuctl-cluster")).encode(), **pictures}
    for path, data in written.items():
        _write(path, data)
    document = {"runs": [entry.run_id for entry in entries], "files": list(map(str, written))}
    out.show(document, [f"Written: {path}" for path in written])


def _report(entry: "RunRecord", runs: Path) -> "Report":
    from engine.analysis.bisect.report import find
    from engine.analysis.metrics.curves import course
    from engine.analysis.metrics.summary import summaries
    from engine.analysis.report import Report, pairs_in
    from engine.analysis.timeline import timeline
    from engine.record.history import History
    from engine.record.journal_copy import recorded_events
    from engine.record.metrics_record import recorded_samples

    with History(runs) as history:
        tables = history.tables(entry.run_id)
        findings, setting = history.findings(entry.run_id), history.setting(entry.run_id)
    bisect = find(entry, runs)
    samples = list(recorded_samples(runs, entry.run_id))
    return Report(
        run=entry,
        setting=setting,
        tables=tables,
        findings=findings,
        timeline=timeline(recorded_events(runs, entry.run_id)),
        pairs=() if bisect else pairs_in(tables),
        bisect=bisect,
        used=summaries(samples),
        course=course(samples),
    )


def _picture(reports: "list[Report]") -> bytes:
    """Return the PNG of bandwidths and bisects. Raise InputError if there are none."""
    import vl_convert

    from config.errors import InputError
    from engine.analysis import charts
    from engine.analysis.report import bisects_in, reference_gbs

    drawn = [
        charts.bandwidth(title, lines, reference_gbs(title, reports))
        for title, lines in charts.lines_by_collective(reports).items()
    ]
    drawn += [charts.pairs_of_bisect(bisect) for bisect in bisects_in(reports)]
    drawn += [charts.heat_map(one.pairs) for one in reports if one.pairs]
    if not drawn:
        raise InputError("no nccl-tests table was printed", "leave --png out")
    return vl_convert.vegalite_to_png(charts.page_of(drawn), scale=2)


def _write(path: Path, data: bytes) -> None:
    from config.errors import InputError
    from config.files import write_named_file

    try:
        write_named_file(path, data)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", "name another file with -o or --png"
        ) from error
