"""`gpuctl logs RUN`: what a run printed, also after its fleet is gone."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import LatestRunArgument
from cli.chosen_run import chosen_run
from cli.options import FoldOption, chosen_target, output
from cli.render import lines as render
from cli.render import log_filter
from config.errors import GpuctlError
from engine.contract.event import Event
from engine.contract.head_events import OutputDropped, RunFinished
from engine.contract.worker_events import Output
from operations import run_events, run_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.output import Output as Out
    from engine.agent.journal.lines import Line


def logs(
    context: typer.Context,
    run: LatestRunArgument = None,
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
    """Print the output of a run by rank, also when it is over.

    It is what a client of this machine has received: --follow receives the rest. It is there after
    the cluster is gone; with a team's bucket (`backend`) also that of a colleague's run. With
    --json every line of output is one JSON object: time, rank, stream, text.

    $ gpuctl logs
    $ gpuctl logs nccl-tests --rank 1 -f
    $ gpuctl logs --rank 0,8-15 --since 10m --grep 'loss|error' --tail 100
    """
    here, out = chosen_target(context), output(context)
    lines = log_filter.wanted(rank, since, grep)
    record = chosen_run(here, run, out)
    run_log.check_kept(here, record)
    view = _LogView(lines, out, record.nodes, folds, tail)
    problem = None
    try:
        run_log.read_log(here, record, on_event=view.event, follow=follow, watcher=out.progress())
    except GpuctlError as error:
        problem = error
    view.end()
    if not view.is_complete:
        out.complain(f"gpuctl: {run_log.missing_part(here, record.run_id)}")
    if problem is not None:
        raise problem


class _LogView:
    """Prints the wanted lines of a run's events."""

    def __init__(
        self, lines: "log_filter.Wanted", out: "Out", nodes: int, folds: bool, tail: int | None
    ) -> None:
        self._wanted, self._out = lines, out
        self._view = render.LineView(out, nodes, folds)
        self._lines = run_events.WholeLines()
        show = self._record if out.as_json else self._view.show
        self.is_complete = False
        """Whether the run's end is among the events."""
        self._tail = None if tail is None else log_filter.Tail(tail, show)
        self._show = show if self._tail is None else self._tail.add

    def event(self, event: Event) -> None:
        """Print the lines that the event completes."""
        if isinstance(event, Output) and self._wanted.has(event.rank, event.time):
            self._print(self._lines.feed(event))
            if self._tail is None and self._wanted.pattern is None:
                self._view.show_state(event.rank, self._lines.state(event.rank, event.stream))
        elif isinstance(event, RunFinished):
            self.is_complete = True
        elif isinstance(event, OutputDropped):
            self._print(self._lines.rest())
            lines = render.dropped_lines(event)
            self._show([line for line in lines if self._wanted.has(line.rank, line.time)])

    def end(self) -> None:
        """Print what is not complete."""
        self._print(self._lines.rest())
        if self._tail is not None:
            self._tail.flush()
        self._view.rest()
        self._view.clear()

    def _print(self, lines: "Sequence[Line]") -> None:
        if self._wanted.pattern is not None:
            lines = [line for line in lines if self._wanted.matches(line.text)]
        self._show(lines)

    def _record(self, lines: "Sequence[Line]") -> None:
        for line in lines:
            self._out.record(json.dumps(line._asdict(), ensure_ascii=False))
