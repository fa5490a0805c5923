"""`gpuctl ps`: the runs, newest first; and which of their logs are kept."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import WatchOption, YesOption, chosen_target, output
from config import duration
from config.errors import InputError
from config.quantities import age, counted, money, size
from operations import kept_logs, known

if TYPE_CHECKING:
    from cli.output import Output
    from operations.chosen_target import ChosenTarget


DROP = ("ATTEMPTS", "NODES", "STARTED", "COST", "CLUSTER")
"""The columns that a narrow terminal lacks, the first of them first."""


def ps(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Option("-n", metavar="N", min=1, help="The newest N runs alone.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove logs beyond 30 days and 10 GiB; results stay.")
    ] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="With --prune: logs older than this (7d).")
    ] = None,
    yes: YesOption = False,
    watch: WatchOption = False,
) -> None:
    """List the runs: where, status, attempts, exit code, cost.

    HEARD is how long ago this machine last heard of a run that is not over. Such a run fails if
    AWS says that its head does not run any more. With a team's bucket (`backend`), the runs of all
    are listed.

    $ gpuctl ps -n 20
    $ gpuctl ps --watch
    $ gpuctl ps --json | jq '.[0].run_id'
    $ gpuctl ps --prune --older-than 7d
    """
    chosen, out = chosen_target(context), output(context)
    if prune:
        age_s = None
        if older_than is not None:
            age_s = duration.given_duration(older_than, "--older-than", "7d or 12h")
        _prune(chosen, age_s, out, yes)
        return
    if older_than is not None or yes:
        raise InputError("--older-than and --yes are for --prune alone", "add --prune")
    if watch:
        view = out.progress()
        out.watch(lambda: [*_lines(known.list_runs(chosen, limit=number, watcher=view), out)])
        return
    with out.progress() as view:
        runs = known.list_runs(chosen, limit=number, watcher=view)
    values = [
        {
            **run.record.model_dump(mode="json"),
            "status": run.status,
            "place": run.place,
            "heard": run.heard,
        }
        for run in runs
    ]
    out.show(values, _lines(runs, out))


def _lines(runs: "Sequence[known.ListedRun]", out: "Output") -> Iterator[str]:
    if not runs:
        yield "No run yet."
        return
    rows = (
        (
            run.record.run_id,
            run.record.cluster,
            str(run.record.nodes),
            run.status if run.place is None else f"{run.status} {run.place}",
            str(run.record.attempts),
            "" if run.record.exit_code is None else str(run.record.exit_code),
            "" if run.record.cost_usd is None else money(run.record.cost_usd),
            f"{run.record.started:%Y-%m-%d %H:%M:%S}",
            "" if run.heard is None else age(run.heard),
        )
        for run in runs
    )
    head = ("RUN", "CLUSTER", "NODES", "STATUS", "ATTEMPTS", "EXIT", "COST", "STARTED", "HEARD")
    yield from out.table(head, rows, right=("NODES", "ATTEMPTS", "EXIT", "COST"), drop=DROP)


def _prune(chosen: "ChosenTarget", age_s: int | None, out: "Output", yes: bool) -> None:
    """Remove the logs of runs beyond the budget, or older than `age_s`, once the person agrees."""
    with out.progress() as view:
        pruning = kept_logs.plan_pruning(chosen, age_s=age_s, watcher=view)
    freed = sum(run.size for run in pruning.removed)
    for run in pruning.removed:
        out.say(f"{run.folder.name:<28} {size(run.size):>9}")
    if pruning.removed:
        count = counted(len(pruning.removed), "run")
        out.confirm(f"Remove the logs of {count}, {size(freed)}? Their results stay.", yes)
        kept_logs.prune(pruning)
        end = f"The logs of {count} are removed, {size(freed)} freed."
    else:
        total = size(sum(run.size for run in pruning.kept))
        count = counted(len(pruning.kept), "run")
        end = f"Nothing to remove: the logs of {count} are kept, {total}."
    parts = [{"run_id": run.folder.name, "bytes": run.size} for run in pruning.removed]
    out.show({"removed": parts, "freed_bytes": freed}, [end])
