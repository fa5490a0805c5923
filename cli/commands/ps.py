"""`gpuctl ps`: the runs, newest first; and which of their logs are kept."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import YesOption, chosen_target, output
from cli.shared_runs import share_runs

if TYPE_CHECKING:
    from cli.output import Output
    from engine.record.history import RunRecord
    from operations.chosen_target import ChosenTarget


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
) -> None:
    """List the runs: where, status, attempts, exit code, cost.

    A run that is not over fails if AWS says that its head does not run any more. With a team's
    bucket (`backend`), the runs of all are listed.

    $ gpuctl ps -n 20
    $ gpuctl ps --json | jq '.[0].run_id'
    $ gpuctl ps --prune --older-than 7d
    """
    from config.errors import InputError
    from engine.record.history import History

    here, out = chosen_target(context), output(context)
    runs = here.state / "runs"
    share_runs(here, out)
    with History(runs) as history:
        entries = history.runs()
    if prune:
        _prune(runs, entries, _age(older_than), out, yes)
    elif older_than is not None or yes:
        raise InputError("--older-than and --yes are for --prune alone", "add --prune")
    else:
        from cli.commands.queue import queue_places

        entries = _checked(here, entries[:number], out)
        places = queue_places(here, entries, out)
        values = [
            {**entry.model_dump(mode="json"), "status": status, "place": place}
            for entry in entries
            for status, place in [_status(entry, places)]
        ]
        out.show(values, _lines(entries, places, out))


def _checked(
    here: "ChosenTarget", entries: "tuple[RunRecord, ...]", out: "Output"
) -> "tuple[RunRecord, ...]":
    """Return the runs as they are now; print which have lost their heads, and why."""
    from cli.lost_head import mark_lost
    from engine.record.history import History

    lost = mark_lost(here, entries)
    for run in lost:
        out.warn(run.message)
    if not lost:
        return entries
    with History(here.state / "runs") as history:
        return tuple(history.find(entry.run_id) for entry in entries)


def _status(entry: "RunRecord", places: dict[str, int]) -> tuple[str, int | None]:
    """Return the run's status, and its place in the queue if it waits and the head said so."""
    place = places.get(entry.run_id)
    if entry.status != "queued" or place is None:
        return entry.status, None
    return ("queued", place) if place else ("running", None)


def _lines(entries: "Sequence[RunRecord]", places: dict[str, int], out: "Output") -> Iterator[str]:
    from config.quantities import money

    if not entries:
        yield "No run yet."
        return
    rows = (
        (
            entry.run_id,
            entry.cluster,
            str(entry.nodes),
            " ".join(str(part) for part in _status(entry, places) if part is not None),
            str(entry.attempts),
            "" if entry.exit_code is None else str(entry.exit_code),
            "" if entry.cost_usd is None else money(entry.cost_usd),
            f"{entry.started:%Y-%m-%d %H:%M:%S}",
        )
        for entry in entries
    )
    head = ("RUN", "CLUSTER", "NODES", "STATUS", "ATTEMPTS", "EXIT", "COST", "STARTED")
    yield from out.table(head, rows, right=("NODES", "ATTEMPTS", "EXIT", "COST"))


def _age(older_than: str | None) -> int | None:
    from config.duration import parse_duration
    from config.errors import InputError

    try:
        return None if older_than is None else parse_duration(older_than)
    except ValueError as error:
        raise InputError(f"--older-than is '{older_than}': it {error}", "write 7d or 12h") from None


def _prune(
    runs: Path, entries: "Sequence[RunRecord]", age_s: int | None, out: "Output", yes: bool
) -> None:
    """Remove the logs of runs beyond the budget, or older than `age_s`, once the person agrees."""
    from config.quantities import size
    from engine.agent.journal.run_folders import AGE_S
    from engine.record.journal_budget import remove, runs_over_budget, stored_runs

    kept = stored_runs(runs, entries)
    removed = runs_over_budget(kept, AGE_S if age_s is None else age_s)
    freed = sum(run.size for run in removed)
    for run in removed:
        out.say(f"{run.folder.name:<28} {size(run.size):>9}")
    if removed:
        count = _runs(len(removed))
        out.confirm(f"Remove the logs of {count}, {size(freed)}? Their results stay.", yes)
        remove(removed)
        end = f"The logs of {count} are removed, {size(freed)} freed."
    else:
        total = size(sum(run.size for run in kept))
        end = f"Nothing to remove: the logs of {_runs(len(kept))} are kept, {total}."
    parts = [{"run_id": run.folder.name, "bytes": run.size} for run in removed]
    out.show({"removed": parts, "freed_bytes": freed}, [end])


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
