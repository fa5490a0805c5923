"""The question for the lease of a new cluster."""

import sys
from typing import TYPE_CHECKING

from config import duration
from config.command_text import command_text
from config.errors import InputError
from operations import lease

if TYPE_CHECKING:
    from cli.output import Output
    from config.cluster.cluster_file import Cluster
    from operations.chosen_target import ChosenTarget


def ask_for_lease(
    chosen: "ChosenTarget", cluster: "Cluster", out: "Output", *, yes: bool
) -> "Cluster":
    """Return a new cluster that has no end with one that the person gives, if there is a terminal.

    Without a terminal, and with `yes`, a warning says that the cluster has none.
    """
    if not lease.is_new_without_end(chosen, cluster):
        return cluster
    if yes or not sys.stdin.isatty():
        out.warn(
            f"cluster {cluster.name} has no lease: it ends only with"
            f" {command_text('gpuctl down {}', cluster.name)}; set `lifetime` in its file, or say"
            " --no-lease"
        )
        return cluster
    answer = out.ask(
        f"{cluster.name}: its file has no `lifetime`. After how long does the cluster end (8h; none"
        " for never)? "
    ).strip()
    if answer == "none":
        return cluster
    try:
        return lease.with_end_after(cluster, duration.parse_duration(answer))
    except ValueError as error:
        hint = "repeat `up`, set `lifetime: {max: 8h}` in the file, or say --no-lease"
        raise InputError(f"the end of cluster {cluster.name} {error}", hint) from None
