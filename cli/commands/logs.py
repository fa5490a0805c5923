"""`gpuctl logs RUN`: what a run printed, also after its fleet is gone."""

from typing import Annotated

import typer

from cli.arguments import LatestRunArgument, chosen_run
from cli.complete import nodes_of_run
from cli.options import FoldOption, chosen_target, output
from cli.render import log_view
from config.errors import GpuctlError
from operations import run_log


def logs(
    context: typer.Context,
    run: LatestRunArgument = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these nodes: node0, node[2-5].",
            autocompletion=nodes_of_run,
        ),
    ] = None,
    rank: Annotated[
        str | None, typer.Option(metavar="RANKS", help="Only these ranks: 0,8-15.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only output of this time until now: 10m.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only lines with a match.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Only the last N of those lines.")
    ] = None,
    folds: FoldOption = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
) -> None:
    """Print the output of a run by node, also when it is over.

    It is what a client of this machine has received: --follow receives the rest. It is there after
    the cluster is gone; with a team's bucket (`backend`) also that of a colleague's run. With
    --json every line of output is one JSON object: time, rank, stream, text, node.

    $ gpuctl logs
    $ gpuctl logs nccl-tests --node node1 -f
    $ gpuctl logs --rank 0,8-15 --since 10m --grep 'loss|error' --tail 100
    """
    chosen, out = chosen_target(context), output(context)
    lines = log_view.line_filter(node, rank, since, grep)
    record = chosen_run(chosen, run, out)
    run_log.check_kept(chosen, record)
    view = log_view.LogView(lines, out, record.nodes, folds, tail)
    problem = None
    try:
        run_log.read_log(chosen, record, on_event=view.event, follow=follow, watcher=out.progress())
    except GpuctlError as error:
        problem = error
    view.end()
    if not view.is_complete:
        out.complain(f"gpuctl: {run_log.missing_part(chosen, record.run_id)}")
    if problem is not None:
        raise problem
