"""The runs on a cluster: an operation finds them before it takes anything from the cluster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from config.command_text import command_text
from config.errors import InputError, NodeError, StateError
from config.event_loop import run_in_loop
from engine.contract.names import DOWN, HEALS
from engine.record.history import History
from engine.session.cluster_runs import Holder, find_holders
from engine.session.head import hold
from operations.chosen_target import ChosenTarget
from operations.watcher import Watcher


def find_runs(chosen: ChosenTarget, cluster: str, watcher: Watcher) -> tuple[Holder, ...]:
    """Return the runs that are on the cluster or wait for it.

    A head that does not answer is a warning: it must not prevent removal of the rest.
    """
    try:
        inventory = chosen.cluster_store(cluster).inventory(cluster)
    except (InputError, StateError, ValueError):
        # It never was ready, its file is damaged, or the disk is full: no head to ask.
        return ()
    try:
        return run_in_loop(find_holders(inventory))
    except NodeError as error:
        watcher.warn(f"whether a run is on cluster {cluster} is unknown: {error.message}")
        return ()


def occupancy_text(chosen: ChosenTarget, cluster: str, runs: Sequence[Holder]) -> str:
    """Return which run is on the cluster, since when, and who started it from another machine.

    Return an empty text without runs.
    """
    if not runs:
        return ""
    run, *more = runs
    others = "" if not more else " (and 1 more)" if len(more) == 1 else f" (and {len(more)} more)"
    since = f" since {run.since:%Y-%m-%d %H:%M:%S} UTC" if run.since else ""
    is_ours = True
    with suppress(StateError), History(chosen.runs) as history:  # the disk may be full
        is_ours = any(known.run_id == run.run_id for known in history.runs())
    owner = f"started by {run.owner}" if run.owner else "started from another machine"
    whose = "" if is_ours else f", {owner}"
    return f"run {run.run_id}{others} has been on cluster {cluster}{since}{whose}"


def check_free(
    chosen: ChosenTarget, cluster: str, reason: str, hint: str, watcher: Watcher
) -> None:
    """Raise InputError if a run is on the cluster.

    `reason` says why it must be free. `hint` is the remedy, with `{run}` for the run's id.
    """
    runs = find_runs(chosen, cluster, watcher)
    if runs:
        text = f"{occupancy_text(chosen, cluster, runs)}, and {reason}"
        raise InputError(text, hint.format(run=runs[0].run_id))


@contextmanager
def prevent_healing(chosen: ChosenTarget, cluster: str, runs: Sequence[Holder]) -> Iterator[None]:
    """Let no client make lost nodes again in this block, which removes the cluster with its runs.

    Raise InputError while a client does. A head that does not answer prevents nothing.
    """
    if not runs:  # nodes are made again for runs alone
        yield
        return
    run_id, inventory = runs[0].run_id, chosen.cluster_store(cluster).inventory(cluster)
    with hold(run_id, inventory, DOWN) as answer:
        if answer == HEALS:
            raise InputError(
                f"cluster {cluster} is not removed: another gpuctl makes its lost nodes again",
                "wait for it, or end it where it runs; then repeat"
                f" {command_text('gpuctl down {}', cluster)}",
            )
        yield


def is_kept_by_others(chosen: ChosenTarget, cluster: str, run_id: str, watcher: Watcher) -> bool:
    """Return whether other runs than this one, which is over, keep the cluster; warn of them."""
    others = [run for run in find_runs(chosen, cluster, watcher) if run.run_id != run_id]
    if others:
        watcher.warn(
            f"cluster {cluster} is not destroyed: {occupancy_text(chosen, cluster, others)}"
        )
    return bool(others)
