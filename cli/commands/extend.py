"""`gpuctl extend CLUSTER DURATION`: move the end of a cluster's lease."""

from datetime import datetime
from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from config import duration
from config.folded_names import fold
from operations import lease


def extend(
    context: typer.Context,
    cluster: ClusterArgument,
    by: Annotated[
        str, typer.Argument(metavar="DURATION", help="How much later it ends: 30m, 2h, 1d.")
    ],
) -> None:
    """Let a cluster live longer than `lifetime.max` of its file says.

    All machines get the same new end, at once. Nothing changes if one of them does not answer.

    $ gpuctl extend demo 2h
    """
    chosen, out = chosen_target(context), output(context)
    seconds = duration.given_duration(by, "DURATION", "30m or 2h")
    moved = lease.extend(chosen, cluster, seconds)
    document = {
        "cluster": cluster,
        "before": _time(moved.before),
        "end": _time(moved.end),
        "machines": list(moved.machines),
    }
    text = (
        f"Cluster {cluster} ends at {moved.end:%Y-%m-%d %H:%M:%S} UTC, instead of"
        f" {moved.before:%Y-%m-%d %H:%M:%S}: {fold(moved.machines)} power off then."
    )
    out.show(document, [text])


def _time(when: datetime) -> str:
    return when.isoformat(timespec="seconds")
