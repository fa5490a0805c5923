"""The end of a run: remove its cluster if the run says so, and report what that cost."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from config.command_text import command_text
from config.errors import GpuctlError
from config.file_locks import wait_for_lock
from engine.contract.names import BUSY, HEALS, HELD, REMOVAL, TAKEN
from engine.record.history import History
from engine.record.run_errors import KnownRun
from engine.session import head
from nodes.inventory import Inventory
from operations import aws_checks, release
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import is_kept_by_others
from operations.watcher import Watcher
from provision.state.store import ClusterStore

if TYPE_CHECKING:
    from provision.down import Teardown


def check_removable(cluster: str, store: ClusterStore) -> None:
    """Raise InputError if these credentials could not remove the cluster at the end."""
    record = store.record(cluster)
    if record is not None:
        aws_checks.check_credentials(cluster, record.account, store.target)


@contextmanager
def ending(inventory: Inventory, run_id: str, watcher: Watcher) -> Iterator[None]:
    """Do the end of the run in this block; wait while another client of this machine does it.

    Two clients that follow a run see its end at once, and would fetch and remove the same.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context((inventory.folder / "ending.lock").open("w"))
            wait_for_lock(
                file,
                lambda: watcher.note(f"-- another gpuctl ends run {run_id}: waiting for it"),
            )
        except FileNotFoundError:
            pass  # another client has removed the cluster, and its folder
        except OSError as error:  # a full disk must not keep the cluster
            watcher.warn(f"two clients may end run {run_id} at once: {error.strerror}")
        yield


def destroy_if_asked(
    chosen: ChosenTarget, run: KnownRun, inventory: Inventory, watcher: Watcher
) -> "Teardown | GpuctlError | None":
    """Remove the cluster if the run says so, and no other run is on it.

    Return what was removed, or the error.
    """
    if run.on_stop != "destroy":
        return None
    try:
        with removable(chosen, run.run_id, inventory, watcher) as may_remove:
            return destroy(chosen, run.run_id, inventory, watcher) if may_remove else None
    except GpuctlError as error:
        return error


@contextmanager
def removable(
    chosen: ChosenTarget,
    run_id: str,
    inventory: Inventory,
    watcher: Watcher,
    *,
    is_lost: bool = False,
) -> Iterator[bool]:
    """Yield whether this client is to remove the cluster in this block; note why, if not.

    No run begins on the cluster during the block, and no client of another machine removes it.
    The head of a lost run is not asked: it may be what was lost.
    """
    cluster = inventory.cluster
    if is_lost or is_removed(chosen, cluster, watcher):
        yield is_lost and not is_removed(chosen, cluster, watcher)
        return
    answer, is_kept, heals = BUSY, False, False
    while answer in (BUSY, HEALS) and not is_kept:  # until others end, or keep the cluster
        with head.hold(run_id, inventory, REMOVAL) as answer:
            if answer == HEALS and not heals:
                heals = True
                watcher.note(f"-- another gpuctl makes nodes of {cluster} again: waiting for it")
            if answer == TAKEN:
                forget = (
                    f"{command_text('gpuctl down {}', cluster)} removes this machine's record of it"
                )
                watcher.note(f"-- another gpuctl removes cluster {cluster}: {forget}")
            is_kept = answer == TAKEN or (
                answer != HELD and is_kept_by_others(chosen, cluster, run_id, watcher)
            )
            if is_kept or answer not in (BUSY, HEALS):
                yield not is_kept


def is_removed(chosen: ChosenTarget, cluster: str, watcher: Watcher) -> bool:
    """Return whether another client has removed the cluster; note it if so."""
    if chosen.is_known(cluster):
        return False
    watcher.note(f"-- cluster {cluster} is removed already")
    return True


def destroy(
    chosen: ChosenTarget, run_id: str, inventory: Inventory, watcher: Watcher
) -> "Teardown":
    """Remove the cluster of a run that is over.

    GpuctlError when that fails. Then the nodes power off by themselves, and the hint says so.
    """
    try:
        with head.prevent_power_off(run_id, inventory):
            return release.remove(chosen, inventory.cluster, watcher=watcher)
    except GpuctlError as error:
        rest = "its nodes power off by themselves within 3 minutes, other resources bill on"
        raise error.with_added_hint(rest) from error


def record_cost(gone: "Teardown | GpuctlError | None", runs: Path, run_id: str) -> None:
    """Store what the removed cluster has cost as the run's cost, if both are known."""
    cost = None if gone is None or isinstance(gone, GpuctlError) else gone.cost_usd
    if cost is not None:
        with History(runs) as history:
            history.set_cost(run_id, cost)
