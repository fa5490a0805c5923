"""A run as its clients know it, whether they started it or not, and the errors that it outlives."""

from config.command_text import command_text
from config.errors import RunError
from engine.contract.plan import LaunchPlan
from engine.record.events import FirstEvent

KnownRun = LaunchPlan | FirstEvent
"""A run by its plan, or by the first event of its journal."""

NOBODY_READS = "nobody reads its output"
"""Why a client leaves a run whose output goes into a pipe that its reader has closed."""

_LOST = "are lost then if no client has fetched them"


def unfetched(known: KnownRun) -> str:
    """Return what a run leaves on its nodes until a client fetches it, in words."""
    outputs = f" and outputs ({', '.join(known.outputs)})" if known.outputs else ""
    return f"its log{',' if outputs else ' and'} metrics{outputs}"


def unattended_end(known: KnownRun) -> str:
    """Return where log, metrics and outputs are after nodes have powered off without a client."""
    if known.saved:
        return f"{unfetched(known)} are copied to {known.saved} before"
    return f"{unfetched(known)} {_LOST}"


def way_to_saved(run_id: str, cluster: str, gpuctl: str = "gpuctl") -> str:
    """Return how to get what a run has left in the shared storage; `gpuctl` is the command."""
    return (
        f"`{gpuctl} up FILE` and {command_text(f'{gpuctl} attach {{}}', run_id)} get them,"
        f" {command_text(f'{gpuctl} down {{}}', cluster)} deletes them"
    )


class RunGoesOn(RunError):
    """An error of the client alone: the run goes on, so its cluster must not be destroyed."""

    def __init__(self, known: KnownRun, why: str) -> None:
        run, cluster = known.run_id, known.cluster
        hint = (
            f"{command_text('gpuctl attach {}', run)} follows it,"
            f" {command_text('gpuctl stop {}', run)} ends it"
        )
        if known.on_stop == "destroy":
            hint += f"; at its end the nodes power off: {unattended_end(known)}"
            if known.saved:
                hint += f"; {way_to_saved(run, cluster)}"
            else:
                hint += f", and {command_text('gpuctl down {}', cluster)} removes the rest"
        super().__init__(f"run {run} goes on without this client: {why}", hint)


class Detached(RunGoesOn):
    """A run that goes on without this client because the user wanted that."""

    def __init__(self, known: KnownRun) -> None:
        super().__init__(known, "detached")


class RunLost(RunError):
    """A run that has no result, because its supervisor or its head is gone; `reason` says which.

    `saved` is the folder of the shared storage that may have what the run left, if all nodes of the
    cluster have ended: the cluster costs little, and its removal deletes the folder.
    """

    run_id = ""
    reason = ""
    saved = ""

    @classmethod
    def of(cls, run_id: str, reason: str, hint: str) -> "RunLost":
        """Return the error about the run."""
        error = cls(f"run {run_id}: {reason}", hint)
        error.run_id, error.reason = run_id, reason
        return error
