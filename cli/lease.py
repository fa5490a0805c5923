"""The lease of a cluster that `up` makes: the file's, the settings', or what a person answers."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.output import Output
    from config.cluster.cluster_file import Cluster
    from operations.chosen_target import ChosenTarget


def with_lifetime(cluster: "Cluster", here: "ChosenTarget") -> "Cluster":
    """Return a cluster whose file has no lifetime with that of the user's settings.

    A cluster that exists keeps what it has: its machines were launched with it.
    """
    from config.settings import settings
    from provision.records.record import read

    if cluster.lifetime is not None:
        return cluster
    before = read(cluster.name, here.remembered())
    if before is not None:
        kept = before.resolved.cluster.lifetime
        return cluster if kept is None else cluster.model_copy(update={"lifetime": kept})
    seconds = settings()["lifetime"].value
    return cluster if seconds is None else _with_max(cluster, seconds)


def chosen_lease(
    cluster: "Cluster", here: "ChosenTarget", out: "Output", *, no_lease: bool, yes: bool
) -> "Cluster":
    """Return the cluster with the lease that `up` gives it."""
    if no_lease:
        return without_lease(cluster)
    return ask_for_lease(with_lifetime(cluster, here), here, out, yes=yes)


def without_lease(cluster: "Cluster") -> "Cluster":
    """Return the cluster as it is, which has no end; InputError if its file sets one."""
    from config.errors import InputError

    if cluster.lifetime is not None:
        raise InputError(
            f"--no-lease contradicts `lifetime` in the file of cluster {cluster.name}",
            "remove one of them",
        )
    return cluster


def ask_for_lease(
    cluster: "Cluster", here: "ChosenTarget", out: "Output", *, yes: bool
) -> "Cluster":
    """Return a new cluster that has no end with one that the person gives, if there is a terminal.

    Without a terminal, and with `yes`, a warning says that the cluster has none.
    """
    from config.duration import parse_duration
    from config.errors import InputError
    from provision.records.record import read

    if cluster.lifetime is not None or read(cluster.name, here.remembered()) is not None:
        return cluster
    if yes or not sys.stdin.isatty():
        out.warn(
            f"cluster {cluster.name} has no lease: it ends only with `gpuctl down"
            f" {cluster.name}`; set `lifetime` in its file, or say --no-lease"
        )
        return cluster
    answer = out.ask(
        f"{cluster.name}: its file has no `lifetime`. After how long does the cluster end (8h; none"
        " for never)? "
    ).strip()
    if answer == "none":
        return cluster
    try:
        return _with_max(cluster, parse_duration(answer))
    except ValueError as error:
        hint = "repeat `up`, set `lifetime: {max: 8h}` in the file, or say --no-lease"
        raise InputError(f"the end of cluster {cluster.name} {error}", hint) from None


def _with_max(cluster: "Cluster", seconds: int) -> "Cluster":
    from config.cluster.cluster_file import Lifetime

    return cluster.model_copy(update={"lifetime": Lifetime.model_construct(max=seconds)})
