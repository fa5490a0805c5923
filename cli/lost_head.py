"""Ask AWS about a head that does not answer: without its head a run is lost."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.contract.event import Event
from engine.contract.head_events import HeadUnreachable

if TYPE_CHECKING:
    from config.target import Target
    from engine.record.history import RunRecord
    from engine.record.run_errors import KnownRun, RunLost
    from engine.session.following import OnEvent
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget

ASK_S = 8.0
"""Seconds to wait for AWS: without a network its client tries for minutes."""
_LOGS = "`gpuctl logs {run}` prints what this machine has of its output"


def head_watch(here: "ChosenTarget", there: "Inventory", run: "KnownRun | RunRecord") -> "OnEvent":
    """Return a follower of a run's events that raises RunLost once AWS says that its head ended."""
    home = _home(here, there.cluster)  # now: the record may go together with the head

    def see(event: Event) -> None:
        lost = lost_head(here, there, run, home) if isinstance(event, HeadUnreachable) else None
        if lost is not None:
            raise lost

    return see


def lost_head(
    here: "ChosenTarget",
    there: "Inventory",
    run: "KnownRun | RunRecord",
    home: "tuple[str, Target] | None" = None,
) -> "RunLost | None":
    """Return the error for a run whose head does not run any more; None if AWS does not say so.

    AWS has ASK_S to answer. The account of the credentials is compared with the cluster's first,
    which `home` has, else its record: another account does not list the machine, which is no end.
    """
    from config.errors import GpuctlError
    from provision.aws.instance_end import are_ended, instance_end

    found: list[str] = []
    saved, others = _saved(there, run), [node.instance_id for node in there.nodes[1:]]

    def ask() -> None:
        with contextlib.suppress(GpuctlError):  # no network, or another account's credentials
            target = _checked_target(here, there.cluster, home)
            end = instance_end(target, there.nodes[0].instance_id)
            is_off = bool(end and saved) and are_ended(target, others)
            found.extend((end, saved if is_off else ""))

    _ask_in_time(ask)
    if not any(found):
        return None
    lost = _lost(there, run, found[0])
    lost.saved = found[1]
    return lost


def _home(here: "ChosenTarget", cluster: str) -> "tuple[str, Target] | None":
    """Return the cluster's account, and the target in its region; None without a record."""
    from config.errors import GpuctlError
    from provision.records.record import read

    try:
        record = read(cluster, here.remembered())
        return None if record is None else (record.account, here.cluster_target(cluster))
    except GpuctlError:  # a damaged record, or no network: it is read again when it is needed
        return None


def _checked_target(
    here: "ChosenTarget", cluster: str, home: "tuple[str, Target] | None" = None
) -> "Target":
    """Return the cluster's target; InputError if its credentials are of another account.

    Also without a record: nobody knows then of which account and region the cluster is.
    """
    from provision.aws.account import caller, check_account
    from provision.records.record import unknown_cluster

    home = home or _home(here, cluster)
    if home is None:
        raise unknown_cluster(cluster, ())
    account, target = home
    check_account(cluster, account, caller(target).account)
    return target


def _ask_in_time(ask: "Callable[[], None]") -> None:
    """Call `ask`, which has ASK_S; it may go on later."""
    asking = threading.Thread(target=ask, name="heads", daemon=True)
    asking.start()
    asking.join(ASK_S)


def _lost(there: "Inventory", run: "KnownRun | RunRecord", end: str) -> "RunLost":
    """Return the error for a run; `end` is how the machine of its head ended."""
    from engine.record.run_errors import RunLost, way_to_saved

    head, saved = there.nodes[0], _saved(there, run)
    reason = f"{head.name} was lost: its machine {head.instance_id} {end}"
    return RunLost.of(
        run.run_id,
        reason + _may_be_over(there, run),
        way_to_saved(run.run_id, there.cluster) if saved else "`gpuctl up` replaces it",
    )


def _may_be_over(there: "Inventory", run: "KnownRun | RunRecord") -> str:
    """Return the end of a sentence about a lost head, because nodes power off at a run's end."""
    if run.on_stop != "destroy":
        return ""
    saved = _saved(there, run)
    left = f", and have left its log, metrics and outputs in {saved}" if saved else ""
    return f"; the run may have ended before{left}"


def _saved(there: "Inventory", run: "KnownRun | RunRecord") -> str:
    """Return the folder of the shared storage with what the run has left, empty without one."""
    from engine.plan.remote_paths import saved_folder

    return saved_folder(run.run_id, there.shared) if run.on_stop == "destroy" else ""


def mark_lost(here: "ChosenTarget", entries: "Sequence[RunRecord]") -> "list[RunLost]":
    """Mark those of the runs as failed whose heads do not run any more; return their errors.

    Nobody may follow such a run. AWS is asked once per cluster, for at most ASK_S in all. Without
    an answer, or with another account's, nothing is marked.
    """
    lost = mark_replaced(here, entries)
    known = {error.run_id for error in lost}
    going = [run for run in entries if not run.is_over and run.run_id not in known]
    gone = [
        _lost(there, run, end)
        for there, end in _head_ends(here, [run.cluster for run in going])
        for run in going
        if run.cluster == there.cluster
    ]
    return [*lost, *_mark(here, gone)]


def mark_replaced(here: "ChosenTarget", entries: "Sequence[RunRecord]") -> "list[RunLost]":
    """Mark those of the runs as failed whose machines this machine's records do not have any more.

    Their cluster was removed, or made again under its name, by whatever machine; or their head was
    replaced. Nobody is asked. Return their errors.
    """
    from config.errors import InputError
    from engine.record.run_errors import RunLost

    lost = []
    for run in () if here.is_lab_down() else entries:
        with contextlib.suppress(InputError):  # a damaged record says nothing
            reason = "" if run.is_over else _replacement(here, run)
            if reason:
                lost.append(RunLost.of(run.run_id, reason, _LOGS.format(run=run.run_id)))
    return _mark(here, lost)


def _replacement(here: "ChosenTarget", run: "RunRecord") -> str:
    """Return why the run's machines are not those of its cluster; empty if they may be."""
    from provision.records.record import load_inventory, read

    target = here.cluster_target(run.cluster)
    record = read(run.cluster, target)
    if record is None:
        return "its cluster was removed"
    if record.created > run.started:
        return f"its cluster was removed, and made again at {record.created:%Y-%m-%d %H:%M} UTC"
    there = load_inventory(run.cluster, target)
    head = there.nodes[0]
    if run.head_id in ("", head.instance_id):
        return ""
    reason = f"{head.name} was lost: its machine {run.head_id} was replaced by {head.instance_id}"
    return reason + _may_be_over(there, run)


def _mark(here: "ChosenTarget", lost: "list[RunLost]") -> "list[RunLost]":
    """Mark the runs as failed in the history; return their errors."""
    from engine.record.history import History

    if lost:
        with History(here.state / "runs") as history:
            for error in lost:
                history.mark_lost(error.run_id, error.reason)
    return lost


def _head_ends(here: "ChosenTarget", clusters: "Sequence[str]") -> "list[tuple[Inventory, str]]":
    """Return inventory and end of the head, for the clusters whose heads AWS says have ended."""
    from config.errors import GpuctlError, InputError

    found: list[tuple[Inventory, str]] = []

    def ask() -> None:
        for cluster in dict.fromkeys(clusters):
            try:
                there, end = _head_end(here, cluster)
            except (InputError, ValueError):  # no record, a damaged one, or another account's
                continue
            except GpuctlError:  # no network, or no credentials
                return
            if end:
                found.append((there, end))

    if clusters and not here.is_lab_down():
        _ask_in_time(ask)
    return list(found)


def _head_end(here: "ChosenTarget", cluster: str) -> "tuple[Inventory, str]":
    """Return the cluster's inventory, and how its head ended; empty while that runs."""
    from provision.aws.instance_end import instance_end
    from provision.records.record import load_inventory

    target = _checked_target(here, cluster)
    there = load_inventory(cluster, target)
    return there, instance_end(target, there.nodes[0].instance_id)
