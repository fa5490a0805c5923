"""`gpuctl report RUN…`: what is known of runs, as one page that opens offline."""

from pathlib import Path
from typing import Annotated

import typer

from cli.arguments import chosen_run
from cli.complete import runs as run_names
from cli.options import chosen_target, output
from cli.render import picture
from cli.render import report as page
from config import files
from config.errors import InputError
from config.version import gpuctl_version
from operations import run_report


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
    chosen, out = chosen_target(context), output(context)
    names: list[str | None] = [*dict.fromkeys(run or [])] or [None]
    entries = [chosen_run(chosen, name, out) for name in names]
    reports = [run_report.run_report(chosen, entry) for entry in entries]
    pictures = {} if png is None else {png: picture.picture(reports)}
    script, release = picture.chart_script(), gpuctl_version()
    written = {to: page.page(reports, script, release).encode(), **pictures}
    for path, data in written.items():
        _write(path, data)
    document = {"runs": [entry.run_id for entry in entries], "files": list(map(str, written))}
    out.show(document, [f"Written: {path}" for path in written])


def _write(path: Path, data: bytes) -> None:
    hint = "name another file with -o or --png"
    with files.os_errors_as(InputError, f"{path} cannot be written", hint):
        files.write_named_file(path, data)
