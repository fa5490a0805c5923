"""Ask AWS about a head that does not answer: without its head a run is lost."""

import contextlib
import threading
from collections.abc import Callable, Sequence

from config.command_text import command_text
from config.errors import GpuctlError, InputError
from config.target import Target
from engine.contract.event import Event
from engine.contract.head_events import HeadUnreachable
from engine.plan.remote_paths import saved_folder
from engine.record.history import History, RunRecord
from engine.record.run_errors import KnownRun, RunLost, way_to_saved
from nodes.inventory import Inventory
from operations import aws_checks
from operations.chosen_target import ChosenTarget
from provision.state.record import unknown_cluster

ASK_S = 8.0
"""Seconds to wait for AWS: without a network its client tries for minutes."""
_LOGS = "`gpuctl logs {run}` prints what this machine has of its output"

_Home = tuple[str, Target]
"""The account of a cluster, and the target in its region."""


def head_watch(
    chosen: ChosenTarget, inventory: Inventory, run: KnownRun | RunRecord
) -> Callable[[Event], None]:
    """Return a follower of a run's events that raises RunLost once AWS says that its head ended."""
    home = _home(chosen, inventory.cluster)  # now: the record may go together with the head

    def watch(event: Event) -> None:
        is_silent = isinstance(event, HeadUnreachable)
        lost = lost_head(chosen, inventory, run, home) if is_silent else None
        if lost is not None:
            raise lost

    return watch


def lost_head(
    chosen: ChosenTarget, inventory: Inventory, run: KnownRun | RunRecord, home: _Home | None = None
) -> RunLost | None:
    """Return the error for a run whose head does not run any more; None if AWS does not say so.

    AWS has ASK_S to answer. The account of the credentials is compared with the cluster's first,
    which `home` has, else its record: another account does not list the machine, which is no end.
    """
    answer: list[str] = []
    saved = _saved(inventory, run)

    def ask() -> None:
        with contextlib.suppress(GpuctlError):  # no network, or another account's credentials
            end, is_off = _head_end(chosen, inventory, home, ask_all=bool(saved))
            answer.extend((end, saved if is_off else ""))

    _ask_in_time(ask)
    if not any(answer):
        return None
    lost = _lost(inventory, run, answer[0])
    lost.saved = answer[1]
    return lost


def _home(chosen: ChosenTarget, cluster: str) -> _Home | None:
    """Return the cluster's account, and the target in its region; None without a record."""
    try:
        store = chosen.cluster_store(cluster)
        record = store.record(cluster)
    except GpuctlError:  # a damaged record, or no network: it is read again when it is needed
        return None
    return None if record is None else (record.account, store.target)


def _head_end(
    chosen: ChosenTarget, inventory: Inventory, home: _Home | None = None, *, ask_all: bool = False
) -> tuple[str, bool]:
    """Return how the head ended, empty while it runs; with `ask_all` whether all nodes are off.

    InputError if the credentials are of another account than the cluster, and without a record:
    nobody knows then of which account and region the cluster is.
    """
    home = home or _home(chosen, inventory.cluster)
    if home is None:
        raise unknown_cluster(inventory.cluster, ())
    account, target = home
    aws_checks.check_credentials(inventory.cluster, account, target)
    end = aws_checks.head_end(target, inventory)
    return end, bool(end and ask_all) and aws_checks.are_others_ended(target, inventory)


def _ask_in_time(ask: Callable[[], None]) -> None:
    """Call `ask`, which has ASK_S; it may go on later."""
    asking = threading.Thread(target=ask, name="heads", daemon=True)
    asking.start()
    asking.join(ASK_S)


def _lost(inventory: Inventory, run: KnownRun | RunRecord, end: str) -> RunLost:
    """Return the error for a run; `end` is how the machine of its head ended."""
    head, saved = inventory.nodes[0], _saved(inventory, run)
    reason = f"{head.name} was lost: its machine {head.instance_id} {end}"
    return RunLost.of(
        run.run_id,
        reason + _may_be_over(inventory, run),
        way_to_saved(run.run_id, inventory.cluster) if saved else "`gpuctl up` replaces it",
    )


def _may_be_over(inventory: Inventory, run: KnownRun | RunRecord) -> str:
    """Return the end of a sentence about a lost head, because nodes power off at a run's end."""
    if run.on_stop != "destroy":
        return ""
    saved = _saved(inventory, run)
    left = f", and have left its log, metrics and outputs in {saved}" if saved else ""
    return f"; the run may have ended before{left}"


def _saved(inventory: Inventory, run: KnownRun | RunRecord) -> str:
    """Return the folder of the shared storage with what the run has left, empty without one."""
    return saved_folder(run.run_id, inventory.shared) if run.on_stop == "destroy" else ""


def power_off_hint(run_id: str, inventory: Inventory) -> str:
    """Return what to do about a run with `on_stop: destroy` whose head does not answer."""
    over = "if the run is over, its nodes have powered off"
    saved = saved_folder(run_id, inventory.shared)
    if not saved:
        return f"{over}: {command_text('gpuctl down {}', inventory.cluster)} removes the rest"
    left = f"have left its log, metrics and outputs in {saved}"
    return f"{over}, and {left}: {way_to_saved(run_id, inventory.cluster)}"


def mark_lost(chosen: ChosenTarget, entries: Sequence[RunRecord]) -> list[RunLost]:
    """Mark those of the runs as failed whose heads do not run any more; return their errors.

    Nobody may follow such a run. AWS is asked once per cluster, for at most ASK_S in all. Without
    an answer, or with another account's, nothing is marked.
    """
    lost = mark_replaced(chosen, entries)
    known = {error.run_id for error in lost}
    going = [run for run in entries if not run.is_over and run.run_id not in known]
    gone = [
        _lost(inventory, run, end)
        for inventory, end in _head_ends(chosen, [run.cluster for run in going])
        for run in going
        if run.cluster == inventory.cluster
    ]
    return [*lost, *_mark(chosen, gone)]


def mark_replaced(chosen: ChosenTarget, entries: Sequence[RunRecord]) -> list[RunLost]:
    """Mark those of the runs as failed whose machines this machine's records do not have any more.

    Their cluster was removed, or made again under its name, by whatever machine; or their head was
    replaced. Nobody is asked. Return their errors.
    """
    lost = []
    for run in () if chosen.is_lab_down() else entries:
        with contextlib.suppress(InputError):  # a damaged record says nothing
            reason = "" if run.is_over else _replacement(chosen, run)
            if reason:
                lost.append(RunLost.of(run.run_id, reason, _LOGS.format(run=run.run_id)))
    return _mark(chosen, lost)


def _replacement(chosen: ChosenTarget, run: RunRecord) -> str:
    """Return why the run's machines are not those of its cluster; empty if they may be."""
    store = chosen.cluster_store(run.cluster)
    record = store.find(run.cluster)
    if record is None:
        return "its cluster was removed"
    if record.created > run.started:
        return f"its cluster was removed, and made again at {record.created:%Y-%m-%d %H:%M} UTC"
    inventory = store.inventory(run.cluster)
    head = inventory.nodes[0]
    if run.head_id in ("", head.instance_id):
        return ""
    reason = f"{head.name} was lost: its machine {run.head_id} was replaced by {head.instance_id}"
    return reason + _may_be_over(inventory, run)


def _mark(chosen: ChosenTarget, lost: list[RunLost]) -> list[RunLost]:
    """Mark the runs as failed in the history; return their errors."""
    if lost:
        with History(chosen.runs) as history:
            for error in lost:
                history.mark_lost(error.run_id, error.reason)
    return lost


def _head_ends(chosen: ChosenTarget, clusters: Sequence[str]) -> list[tuple[Inventory, str]]:
    """Return inventory and end of the head, for the clusters whose heads AWS says have ended."""
    ends: list[tuple[Inventory, str]] = []

    def ask() -> None:
        for cluster in dict.fromkeys(clusters):
            try:
                inventory = chosen.cluster_store(cluster).inventory(cluster)
                end, _ = _head_end(chosen, inventory)
            except (InputError, ValueError):  # no record, a damaged one, or another account's
                continue
            except GpuctlError:  # no network, or no credentials
                return
            if end:
                ends.append((inventory, end))

    if clusters and not chosen.is_lab_down():
        _ask_in_time(ask)
    return list(ends)
