"""Follow a run's journal on its cluster."""

from typing import TYPE_CHECKING

from engine.contract.event import Event
from engine.contract.head_events import HeadUnreachable

if TYPE_CHECKING:
    from cli.output import Output
    from engine.record.history import RunRecord
    from engine.session.following import OnEvent
    from operations.chosen_target import ChosenTarget


def follow_journal(
    here: "ChosenTarget", entry: "RunRecord", on_event: "OnEvent", out: "Output"
) -> None:
    """Follow the run on its cluster to its end, or until AWS says that its head is gone.

    `on_event` gets every event. Afterwards this machine has the whole journal. A head that does
    not answer is a warning.
    """
    import asyncio

    from cli.lost_head import head_watch
    from engine.session.session import follow
    from provision.records.record import load_inventory

    inventory = load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    watch = head_watch(here, inventory, entry)
    is_silent = False

    def see(event: Event) -> None:
        nonlocal is_silent
        if isinstance(event, HeadUnreachable) and not is_silent:
            silence = f"the head has not answered for {event.seconds:.0f} s"
            out.complain(f"gpuctl: {silence}: {event.reason}")
        is_silent = isinstance(event, HeadUnreachable)
        watch(event)
        on_event(event)

    asyncio.run(follow(entry.run_id, inventory, here.state / "runs", see))
