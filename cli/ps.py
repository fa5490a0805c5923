"""`gpuctl ps`: the runs, newest first."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import output, session

if TYPE_CHECKING:
    from cli.output import Output
    from engine.history import RunRecord


def ps(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Option("-n", metavar="N", min=1, help="The newest N runs alone.")
    ] = None,
) -> None:
    """List the runs: where, how they ended, exit code, cost.

    $ gpuctl ps -n 20
    $ gpuctl ps --json | jq '.[0].run_id'
    """
    from engine.history import History

    with History(session(context).state / "runs") as history:
        entries = history.runs()[:number]
    out = output(context)
    out.show([entry.model_dump(mode="json") for entry in entries], _lines(entries, out))


def _lines(entries: "Sequence[RunRecord]", out: "Output") -> Iterator[str]:
    from cli.terminal import money

    if not entries:
        yield "No run yet."
        return
    rows = (
        (
            *(entry.run_id, entry.cluster, str(entry.nodes), entry.status),
            "" if entry.exit_code is None else str(entry.exit_code),
            "" if entry.cost_usd is None else money(entry.cost_usd),
            f"{entry.started:%Y-%m-%d %H:%M:%S}",
        )
        for entry in entries
    )
    head = ("RUN", "CLUSTER", "NODES", "STATUS", "EXIT", "COST", "STARTED")
    yield from out.table(head, rows, right=("NODES", "EXIT", "COST"))
