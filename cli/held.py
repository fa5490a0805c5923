"""Find the runs on a cluster, before a command removes anything from it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.output import Output
    from engine.session.cluster_runs import Holder
    from operations.chosen_target import ChosenTarget


def holders_of(here: "ChosenTarget", cluster: str, out: "Output") -> "tuple[Holder, ...]":
    """Return the runs that are on the cluster or wait for it.

    A head that does not answer is a warning: it must not prevent removal of the rest.
    """
    import asyncio

    from config.errors import InputError, NodeError, StateError
    from engine.session.cluster_runs import find_holders
    from provision.records.record import load_inventory

    try:
        inventory = load_inventory(cluster, here.cluster_target(cluster))
    except (InputError, StateError, ValueError):
        # It never was ready, its file is damaged, or the disk is full: no head to ask.
        return ()
    try:
        return asyncio.run(find_holders(inventory))
    except NodeError as error:
        out.warn(f"whether a run is on cluster {cluster} is unknown: {error.message}")
        return ()


def describe(here: "ChosenTarget", cluster: str, runs: "tuple[Holder, ...]") -> str:
    """Say which run is on the cluster, since when, whether this machine started it; and how many.

    Return an empty text without runs.
    """
    from config.errors import StateError
    from engine.record.history import History

    if not runs:
        return ""
    run, *more = runs
    others = "" if not more else " (and 1 more)" if len(more) == 1 else f" (and {len(more)} more)"
    since = f" since {run.since:%Y-%m-%d %H:%M:%S} UTC" if run.since else ""
    is_ours = True
    with suppress(StateError), History(here.state / "runs") as history:  # the disk may be full
        is_ours = any(known.run_id == run.run_id for known in history.runs())
    whose = "" if is_ours else ", started from another machine"
    return f"run {run.run_id}{others} has been on cluster {cluster}{since}{whose}"


def refuse_while_held(here: "ChosenTarget", cluster: str, out: "Output") -> None:
    """Raise InputError if a run is on the cluster, which is about to be changed."""
    from config.errors import InputError

    runs = holders_of(here, cluster, out)
    if runs:
        run_id = runs[0].run_id
        raise InputError(
            f"{describe(here, cluster, runs)}, and this plan ends machines",
            f"stop the run first (`gpuctl stop {run_id}`) or wait for its end"
            f" (`gpuctl wait {run_id}`)",
        )


@contextmanager
def no_healing(here: "ChosenTarget", cluster: str, runs: "tuple[Holder, ...]") -> Iterator[None]:
    """Let no client make lost nodes again in this block, which removes the cluster with its runs.

    Raise InputError while a client does. A head that does not answer prevents nothing.
    """
    from config.errors import InputError
    from engine.agent.head.cluster_locks import DOWN, HEALS
    from engine.session.head import hold
    from provision.records.record import load_inventory

    if not runs:  # nodes are made again for runs alone
        yield
        return
    run_id, there = runs[0].run_id, load_inventory(cluster, here.cluster_target(cluster))
    with hold(run_id, there, DOWN) as answer:
        if answer == HEALS:
            raise InputError(
                f"cluster {cluster} is not removed: another gpuctl makes its lost nodes again",
                f"wait for it, or end it where it runs; then repeat `gpuctl down {cluster}`",
            )
        yield


def others_on(here: "ChosenTarget", cluster: str, run_id: str, out: "Output") -> bool:
    """Return whether other runs than this one, which is over, keep the cluster; say so."""
    others = tuple(run for run in holders_of(here, cluster, out) if run.run_id != run_id)
    if others:
        out.warn(f"cluster {cluster} is not destroyed: {describe(here, cluster, others)}")
    return bool(others)
