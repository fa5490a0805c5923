"""`gpuctl cost`: what clusters and runs have cost, from this machine's history."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.options import chosen_target, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from cli.output import Output
    from provision.spending.report import RunTime, Spending


def cost(
    context: typer.Context,
    since: Annotated[str, typer.Option(metavar="AGE", help="How far back: 12h, 30d.")] = "30d",
    by: Annotated[
        Literal["cluster", "run", "tag"], typer.Option(help="A line for each of these.")
    ] = "cluster",
) -> None:
    """Show what this machine's clusters have cost at list prices.

    $ gpuctl cost --since 7d
    $ gpuctl cost --by tag --json
    """
    from dataclasses import asdict
    from datetime import UTC, datetime, timedelta

    from provision.spending.ledger import cluster_costs
    from provision.spending.report import spending, total_usd

    here, out = chosen_target(context), output(context)
    now = datetime.now(UTC)
    begin = now - timedelta(seconds=_seconds(since))
    target = here.remembered()
    clusters, torn = cluster_costs(target)
    rows = spending(clusters, _runs(target.runs), begin, now, by)
    if torn:
        lines = "1 line" if torn == 1 else f"{torn} lines"
        verb = "it does" if torn == 1 else "they do"
        path = target.state / "costs.jsonl"
        out.warn(f"gpuctl cannot read {lines} of {path}: {verb} not count")
    # With several tags a cluster is in several rows.
    total = total_usd(spending(clusters, (), begin, now, "cluster"))
    document = {
        "since": begin.isoformat(timespec="seconds"),
        "until": now.isoformat(timespec="seconds"),
        "by": by,
        "total_usd": total,
        "rows": [asdict(row) for row in rows],
    }
    out.show(document, _lines(rows, by, begin, total, out))


def _seconds(since: str) -> int:
    from config.duration import parse_duration
    from config.errors import InputError

    try:
        return parse_duration(since)
    except ValueError as error:
        raise InputError(f"--since is '{since}': it {error}", "write 12h or 30d") from None


def _runs(runs: "Path") -> "list[RunTime]":
    from engine.record.history import History
    from provision.spending.report import RunTime

    with History(runs) as history:
        return [
            RunTime(run.run_id, run.cluster, run.nodes, run.started, run.ended)
            for run in history.runs()
            if run.status != "queued"
        ]


def _lines(
    rows: "Sequence[Spending]", by: str, begin: "datetime", total: float | None, out: "Output"
) -> "Iterator[str]":
    from config.quantities import money

    if not rows:
        yield f"No cluster existed since {begin:%Y-%m-%d %H:%M} UTC."
        return
    is_run = by == "run"
    head = (by.upper(), *(("CLUSTER",) if is_run else ()), "NODE HOURS", "COST")
    cells = (
        (row.name, *((row.cluster,) if is_run else ()), f"{row.hours:,.1f}", money(row.cost_usd))
        for row in rows
    )
    yield from out.table(head, cells, right=("NODE HOURS", "COST"))
    sources = dict.fromkeys(source for row in rows for source in row.sources)
    prices = f", prices: {'; '.join(sources)}" if sources else ""
    yield f"Since {begin:%Y-%m-%d %H:%M} UTC: about {money(total)} on demand{prices}."
