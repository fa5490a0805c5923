"""Find the run that holds a cluster, before a command removes anything from it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.chosen_target import ChosenTarget
    from cli.output import Output
    from engine.holder import Holder


def holder_of(here: "ChosenTarget", cluster: str, out: "Output") -> "Holder | None":
    """Return the run that holds the cluster, or None.

    A head that does not answer is a warning and None: it must not prevent removal of the rest.
    """
    import asyncio

    from config.errors import InputError, NodeError
    from engine.holder import find_holder
    from provision.records.record import load_inventory

    try:
        inventory = load_inventory(cluster, here.cluster_target(cluster))
    except (InputError, ValueError):  # it never was ready, or its file is damaged: no head to ask
        return None
    try:
        return asyncio.run(find_holder(inventory))
    except NodeError as error:
        out.warn(f"whether a run is on cluster {cluster} is unknown: {error.message}")
        return None


def describe(here: "ChosenTarget", cluster: str, run: "Holder") -> str:
    """Say which run holds the cluster, since when, and whether this machine started it."""
    from engine.history import History

    since = f" since {run.since:%Y-%m-%d %H:%M:%S} UTC" if run.since else ""
    with History(here.state / "runs") as history:
        is_ours = any(known.run_id == run.run_id for known in history.runs())
    whose = "" if is_ours else ", started from another machine"
    return f"run {run.run_id} has been on cluster {cluster}{since}{whose}"


def refuse_while_held(here: "ChosenTarget", cluster: str, out: "Output") -> None:
    """Raise InputError if a run holds the cluster, which is about to be changed."""
    from config.errors import InputError

    run = holder_of(here, cluster, out)
    if run is not None:
        raise InputError(
            f"{describe(here, cluster, run)}, and this plan changes or removes what exists",
            f"stop the run first (`gpuctl stop {run.run_id}`) or wait for its end"
            f" (`gpuctl logs {run.run_id} -f`)",
        )
