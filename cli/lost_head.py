"""Ask AWS about a head that does not answer: without its head a run is lost."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.chosen_target import ChosenTarget
    from engine.events import Event
    from engine.history import RunRecord
    from engine.known_run import KnownRun, RunLost
    from engine.session import OnEvent
    from nodes.inventory import Inventory


def head_watch(here: "ChosenTarget", there: "Inventory", run: "KnownRun | RunRecord") -> "OnEvent":
    """Return a follower of a run's events that raises RunLost once AWS says that its head ended."""

    def see(event: "Event") -> None:
        lost = lost_head(here, there, run) if event.kind == "head_unreachable" else None
        if lost is not None:
            raise lost

    return see


def lost_head(
    here: "ChosenTarget", there: "Inventory", run: "KnownRun | RunRecord"
) -> "RunLost | None":
    """Return the error for a run whose head does not run any more; None if AWS does not say so."""
    from config.errors import CloudError
    from engine.known_run import RunLost
    from provision.aws.instance_end import instance_end

    head = there.nodes[0]
    try:
        end = instance_end(here.cluster_target(there.cluster), head.instance_id)
    except CloudError:  # this machine may have no network either
        return None
    if not end:
        return None
    reason = f"{head.name} was lost: its machine {head.instance_id} {end}"
    if run.on_stop == "destroy":  # nodes power off at the end of such a run
        reason += "; the run may have ended before"
    return RunLost.of(run.run_id, reason, "`gpuctl up` replaces it")
