"""A run's life as its clients see it: start, follow, attach, wait, stop."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from config.command_text import command_text
from config.duration import format_duration
from config.errors import InputError, NodeError
from config.event_loop import run_in_loop
from config.folders import user_path
from engine.contract.event import Event
from engine.contract.head_events import HeadUnreachable
from engine.contract.plan import LaunchPlan
from engine.plan.secrets import resolve
from engine.record.events import FirstEvent
from engine.record.history import History, RunRecord
from engine.record.outputs_folder import choose_outputs, outputs_folder
from engine.record.result import RunResult
from engine.record.run_errors import (
    NOBODY_READS,
    Detached,
    KnownRun,
    RunGoesOn,
    unattended_end,
    way_to_saved,
)
from engine.session import head, session
from engine.session.container_images import pull
from engine.session.following import LIMITS, Limits, OnEvent
from engine.session.session import Answer, OnInterrupt
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.files import send_code
from operations.forwarded_ports import check_ports, forwarded
from operations.kept_logs import remove_old_logs
from operations.lost_head import head_watch, lost_head, power_off_hint
from operations.prepared_run import PreparedRun
from operations.prerun_health import NodeCheck
from operations.run_client import EndedRun, RunClient
from operations.run_healing import Healing, preparation
from operations.run_search import find_run_with_cluster
from operations.teardown import check_removable, destroy, ending, removable
from operations.watcher import LoggingWatcher, Watcher

if TYPE_CHECKING:
    from provision.down import Teardown

__all__ = [
    "NOBODY_READS",
    "Answer",
    "Detached",
    "EndedRun",
    "FirstEvent",
    "Inventory",
    "KnownRun",
    "OnEvent",
    "OnInterrupt",
    "RunGoesOn",
    "RunResult",
    "unattended_end",
    "way_to_saved",
]


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class ReadyRun:
    """A run whose nodes have its code and image. `secrets` are the values of its secrets."""

    plan: LaunchPlan
    inventory: Inventory
    secrets: Mapping[str, str]


@dataclass(frozen=True)
class StartedRun:
    """A run that goes on on its cluster, for a client that attaches to it."""

    run: FirstEvent
    inventory: Inventory


@dataclass(frozen=True)
class StoppedRun:
    """A run that was stopped. `teardown` is None if its cluster was not removed."""

    result: RunResult
    teardown: "Teardown | None" = None


def make_ready(
    chosen: ChosenTarget,
    prepared: PreparedRun,
    *,
    check_nodes: bool = True,
    forwards_ports: bool = True,
    watcher: Watcher = LoggingWatcher(),
) -> ReadyRun:
    """Send the run's code, and pull its image, which the plan then pins.

    Meanwhile the nodes are checked: NodeError if one is not fit for jobs. Raises first InputError
    if its ports are taken on this machine, unless nothing `forwards_ports`, and StateError if the
    run could not be recorded.
    """
    plan, inventory = prepared.plan, prepared.inventory
    if forwards_ports:
        check_ports(plan.ports)
    store = chosen.cluster_store(inventory.cluster)
    with History(chosen.runs) as history:
        history.check_writable()
    secrets = resolve(plan, prepared.run)
    if plan.on_stop == "destroy":
        check_removable(inventory.cluster, store)
    node_check = NodeCheck(plan, inventory, store) if check_nodes else None
    send_code(plan, prepared.tree, inventory, watcher)
    plan = _pull_image(plan, inventory, secrets, watcher)
    if node_check:
        node_check.finish(watcher)
    if plan.dashboard:
        watcher.note(_dashboard(plan))
    remove_old_logs(chosen, watcher)
    if plan.outputs:
        choose_outputs(chosen.runs, plan.run_id, prepared.outputs)
    return ReadyRun(plan, inventory, secrets)


def start(
    chosen: ChosenTarget,
    ready: ReadyRun,
    *,
    on_removed: "Callable[[Teardown], None]" = _ignore,
    watcher: Watcher = LoggingWatcher(),
) -> None:
    """Start the run and leave it alone; return once its supervisor has it."""
    client = RunClient(
        chosen,
        ready.plan,
        ready.inventory,
        on_event=_ignore,
        on_removed=on_removed,
        watcher=watcher,
    )
    client.leave(session.start(ready.plan, ready.inventory, client.runs, ready.secrets))


def follow(
    chosen: ChosenTarget,
    ready: ReadyRun,
    *,
    on_event: OnEvent = _ignore,
    on_interrupt: OnInterrupt = lambda: "stop",
    on_removed: "Callable[[Teardown], None]" = _ignore,
    watcher: Watcher = LoggingWatcher(),
) -> EndedRun:
    """Start the run, follow it to its end, and do what it asks for there; forward its ports.

    At its end its metrics and outputs are fetched, and its cluster is removed if the run says so.
    Nodes that it waits for are made again. `on_interrupt` says what Ctrl-C means, `on_removed` gets
    the teardown if gpuctl fails after it. Raises Detached after the answer `detach`.
    """
    plan, inventory = ready.plan, ready.inventory
    client = RunClient(
        chosen, plan, inventory, on_event=on_event, on_removed=on_removed, watcher=watcher
    )

    async def life(on_event: OnEvent, on_interrupt: OnInterrupt) -> RunResult:
        with forwarded(plan.ports, inventory, plan.nodes[0].name, watcher):
            return await session.run(
                plan, inventory, client.runs, on_event, ready.secrets, on_interrupt
            )

    prepare = preparation(plan.run_id, watcher, ready.secrets)
    healing = Healing(chosen, plan.run_id, inventory, watcher, prepare)
    return client.live(life, on_interrupt, healing)


def find_started(chosen: ChosenTarget, record: RunRecord) -> StartedRun:
    """Return the run, which is not over, for a client that attaches to it.

    Raise at once if the head does not answer: RunLost if AWS says that it is gone, else NodeError.
    """
    store = chosen.cluster_store(record.cluster)
    inventory = store.inventory(record.cluster)
    if record.on_stop == "destroy":
        check_removable(record.cluster, store)
    # What is to follow the run's end is this machine's knowledge: a job is root on the head.
    return StartedRun(
        replace(_first_event(chosen, record, inventory), on_stop=record.on_stop), inventory
    )


def attach(
    chosen: ChosenTarget,
    started: StartedRun,
    *,
    on_event: OnEvent = _ignore,
    on_interrupt: OnInterrupt = lambda: "detach",
    on_removed: "Callable[[Teardown], None]" = _ignore,
    outputs: Path | None = None,
    watcher: Watcher = LoggingWatcher(),
) -> EndedRun:
    """Follow a run that a client started to its end, and do there what `follow` does.

    `on_event` gets every event from the run's beginning, recorded ones first. Outputs come back to
    `outputs/RUN`, by default to the folder that this machine has chosen for the run, else to
    `./outputs/RUN`. InputError if that cannot be written.
    """
    run, inventory = started.run, started.inventory
    if run.outputs:
        runs = chosen.runs
        parent = outputs or outputs_folder(runs, run.run_id).parent
        choose_outputs(runs, run.run_id, user_path(parent).absolute())
    client = RunClient(
        chosen, run, inventory, on_event=on_event, on_removed=on_removed, watcher=watcher
    )

    async def life(on_event: OnEvent, on_interrupt: OnInterrupt) -> RunResult:
        with forwarded(run.ports, inventory, run.nodes[0].name, watcher):
            return await session.attach(run, inventory, client.runs, on_event, on_interrupt)

    healing = Healing(chosen, run.run_id, inventory, watcher, preparation(run.run_id, watcher))
    return client.live(life, on_interrupt, healing)


def wait(
    chosen: ChosenTarget,
    name: str,
    *,
    timeout_s: float | None = None,
    watcher: Watcher = LoggingWatcher(),
) -> RunRecord:
    """Wait for the end of the run of this id or name, `timeout_s` at most; return its record.

    The record of a run that did not end in time is not over. No outputs are fetched, and no
    cluster is removed: `attach` does.
    """
    record, inventory = find_run_with_cluster(chosen, name, watcher=watcher)
    if inventory is None:
        return record
    runs, watch = chosen.runs, head_watch(chosen, inventory, record)

    async def has_ended() -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await session.follow(record.run_id, inventory, runs, watch)
        except TimeoutError:
            return False
        return True

    if not run_in_loop(has_ended()):
        return record
    with History(runs) as history:
        return history.find(record.run_id)


def stop(
    chosen: ChosenTarget,
    name: str,
    *,
    grace_s: int = 0,
    watcher: Watcher = LoggingWatcher(),
) -> StoppedRun:
    """Stop the run of this id or name on all its nodes; remove its cluster if the run says so.

    Its job gets notice `grace_s` before it is stopped. InputError for a run that is over.
    """
    record, inventory = find_run_with_cluster(chosen, name, watcher=watcher)
    if inventory is None:
        raise InputError(f"run {record.run_id} is over ({record.status})", "see `gpuctl ps`")
    if grace_s:
        watcher.note(
            f"{record.run_id} is stopped in {format_duration(grace_s)}; its job has notice"
        )
    result = run_in_loop(session.stop(record.run_id, inventory, chosen.runs, notice_s=grace_s))
    if record.on_stop == "destroy":
        # A client that follows the run removes the cluster too.
        with (
            ending(inventory, record.run_id, watcher),
            removable(chosen, record.run_id, inventory, watcher) as may_remove,
        ):
            if may_remove:
                return StoppedRun(result, destroy(chosen, record.run_id, inventory, watcher))
    return StoppedRun(result)


def follow_journal(
    chosen: ChosenTarget,
    record: RunRecord,
    *,
    on_event: OnEvent,
    watcher: Watcher = LoggingWatcher(),
    limits: Limits = LIMITS,
) -> None:
    """Follow the run on its cluster to its end, or until AWS says that its head is gone.

    `on_event` gets every event. Afterwards this machine has the whole journal. A head that does
    not answer is announced.
    """
    inventory = chosen.cluster_store(record.cluster).inventory(record.cluster)
    watch = head_watch(chosen, inventory, record)
    is_silent = False

    def see(event: Event) -> None:
        nonlocal is_silent
        if isinstance(event, HeadUnreachable) and not is_silent:
            silence = f"the head has not answered for {event.seconds:.0f} s"
            watcher.announce(f"{silence}: {event.reason}")
        is_silent = isinstance(event, HeadUnreachable)
        watch(event)
        on_event(event)

    run_in_loop(session.follow(record.run_id, inventory, chosen.runs, see, limits))


def _first_event(chosen: ChosenTarget, record: RunRecord, inventory: Inventory) -> FirstEvent:
    """Return the run's first event, from its head."""
    try:
        event = run_in_loop(head.find_run(inventory, record.run_id))
    except NodeError as error:
        is_destroyed = record.on_stop == "destroy"
        lost = None if is_destroyed else lost_head(chosen, inventory, record)
        if lost is not None:
            with History(chosen.runs) as history:
                history.mark_lost(record.run_id, lost.reason)
            raise lost from error
        if is_destroyed:
            raise error.with_hint(power_off_hint(record.run_id, inventory)) from error
        if not error.hint:
            raise error.with_hint(
                f"{command_text('gpuctl logs {}', record.run_id)}"
                " prints what this machine has of its output"
            ) from error
        raise
    if event is None or event.run_id != record.run_id:
        return run_in_loop(session.first_event(record.run_id, inventory, chosen.runs))
    return event


def _pull_image(
    plan: LaunchPlan, inventory: Inventory, secrets: Mapping[str, str], watcher: Watcher
) -> LaunchPlan:
    """Pull the image on all nodes; return the plan with it pinned. Report the image's digest."""
    if plan.image is None:
        return plan
    pinned = run_in_loop(pull(plan, inventory, secrets, watcher.report))
    assert pinned.image is not None
    watcher.note(f"-- image {pinned.image.reference}, {pinned.image.digest or pinned.image.id}")
    for text in pinned.warnings[len(plan.warnings) :]:
        watcher.warn(text)
    return pinned


def _dashboard(plan: LaunchPlan) -> str:
    """Return the dashboard's address and the command for a tunnel: nodes have no open port."""
    address = plan.dashboard.partition("//")[2]
    port = address.rpartition(":")[2]
    words = (plan.cluster, plan.nodes[0].name, f"{port}:{address}")
    tunnel = command_text("gpuctl ssh {} {} -- -N -L {}", *words)
    return f"-- dashboard {plan.dashboard}: {tunnel}, then open http://localhost:{port}"
