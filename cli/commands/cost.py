"""`gpuctl cost`: what clusters and runs have cost, from this machine's history."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.options import chosen_target, output
from cli.render import text_table
from config import duration
from config.folded_names import fold
from config.quantities import money
from operations import cost as operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.cost import Costs

DROP = ("SHARE", "NODE HOURS", "CLUSTER")
"""The columns that a narrow terminal lacks, the first of them first."""


def cost(
    context: typer.Context,
    since: Annotated[str, typer.Option(metavar="AGE", help="How far back: 12h, 30d.")] = "30d",
    by: Annotated[
        Literal["cluster", "run", "tag", "user", "month"],
        typer.Option(help="A line for each of these."),
    ] = "cluster",
) -> None:
    """Show what this machine's clusters have cost at list prices.

    $ gpuctl cost --since 7d
    $ gpuctl cost --by month --since 365d
    $ gpuctl cost --by tag --json
    """
    chosen, out = chosen_target(context), output(context)
    age_s = duration.given_duration(since, "--since", "12h or 30d")
    begin = datetime.now(UTC) - timedelta(seconds=age_s)
    with out.progress() as view:
        costs = operation.find(chosen, begin, by=by, watcher=view)
    document = {
        "since": costs.since.isoformat(timespec="seconds"),
        "until": costs.until.isoformat(timespec="seconds"),
        "by": costs.by,
        "total_usd": costs.total_usd,
        "rows": [asdict(row) for row in costs.rows],
        "own": costs.own,
    }
    out.show(document, _lines(costs, out))


def _lines(costs: "Costs", out: "Output") -> "Iterator[str]":
    if costs.own:
        yield f"Machines that you have cost nothing that gpuctl knows: {fold(costs.own)}."
    if not costs.rows:
        rented = "rented cluster" if costs.own else "cluster"
        yield f"No {rented} existed since {costs.since:%Y-%m-%d %H:%M} UTC."
        return
    is_run = costs.by == "run"
    head = (costs.by.upper(), *(("CLUSTER",) if is_run else ()), "NODE HOURS", "COST", "SHARE")
    cells = (
        (
            row.name,
            *((row.cluster,) if is_run else ()),
            f"{row.hours:,.1f}",
            money(row.cost_usd),
            text_table.bar(
                row.cost_usd / costs.total_usd if row.cost_usd and costs.total_usd else None
            ),
        )
        for row in costs.rows
    )
    drop = [name for name in DROP if name != head[0]]
    yield from out.table(head, cells, right=("NODE HOURS", "COST"), drop=drop)
    sources = dict.fromkeys(source for row in costs.rows for source in row.sources)
    prices = f", prices: {'; '.join(sources)}" if sources else ""
    total = money(costs.total_usd)
    yield f"Since {costs.since:%Y-%m-%d %H:%M} UTC: about {total} on demand{prices}."
