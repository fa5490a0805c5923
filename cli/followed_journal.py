"""Follow a run's journal on its cluster, also a colleague's that is over."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.chosen_target import ChosenTarget
    from cli.output import Output
    from engine.events import Event
    from engine.following import OnEvent
    from engine.history import RunRecord
    from nodes.inventory import Inventory


def where_it_ran(here: "ChosenTarget", entry: "RunRecord") -> "Inventory | None":
    """Return the team's cluster on which a colleague's run was; None if it does not exist."""
    from config.bucket import bucket_of
    from config.errors import InputError
    from provision.records.record import load_inventory

    if bucket_of(here.backend) is None:
        return None
    try:
        return load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    except InputError:
        return None


def follow_journal(
    here: "ChosenTarget",
    entry: "RunRecord",
    there: "Inventory | None",
    on_event: "OnEvent",
    out: "Output",
) -> None:
    """Follow the run on its cluster to its end, or until AWS says that its head is gone.

    `on_event` gets every event. Afterwards this machine has the whole journal. A head that does
    not answer is a warning. Without `there` the cluster is the one of this machine's record.
    """
    import asyncio

    from cli.lost_head import head_watch
    from engine.session import follow
    from provision.records.record import load_inventory

    inventory = there or load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    watch = head_watch(here, inventory, entry)
    is_silent = False

    def see(event: "Event") -> None:
        nonlocal is_silent
        if event.kind == "head_unreachable" and not is_silent:
            silence = f"the head has not answered for {event.seconds:.0f} s"
            out.complain(f"gpuctl: {silence}: {event.reason}")
        is_silent = event.kind == "head_unreachable"
        watch(event)
        on_event(event)

    asyncio.run(follow(entry.run_id, inventory, here.state / "runs", see))
