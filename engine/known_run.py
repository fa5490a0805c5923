"""A run as its clients know it, whether they started it or not, and the errors that it outlives."""

from config.errors import RunError
from engine.events import FirstEvent
from engine.launch_plan import LaunchPlan

KnownRun = LaunchPlan | FirstEvent
"""A run by its plan, or by the first event of its journal."""

LOST_THEN = "are lost then if no client has fetched them"


def unfetched(known: KnownRun) -> str:
    """Return what a run leaves on its nodes until a client fetches it, in words."""
    outputs = f" and outputs ({', '.join(known.outputs)})" if known.outputs else ""
    return f"its log{',' if outputs else ' and'} metrics{outputs}"


class RunGoesOn(RunError):
    """An error of the client alone: the run goes on, so its cluster must not be destroyed."""

    def __init__(self, known: KnownRun, why: str) -> None:
        run, cluster = known.run_id, known.cluster
        hint = f"`gpuctl attach {run}` follows it, `gpuctl stop {run}` ends it"
        if known.on_stop == "destroy":
            hint += (
                f"; at its end the nodes power off: {unfetched(known)} {LOST_THEN}, and"
                f" `gpuctl down {cluster}` removes the rest"
            )
        super().__init__(f"run {run} goes on without this client: {why}", hint)


class Detached(RunGoesOn):
    """A run that goes on without this client because the user wanted that."""

    def __init__(self, known: KnownRun) -> None:
        super().__init__(known, "detached")


class RunLost(RunError):
    """A run that has no result, because its supervisor or its head is gone; `reason` says which."""

    run_id = ""
    reason = ""

    @classmethod
    def of(cls, run_id: str, reason: str, hint: str) -> "RunLost":
        """Return the error about the run."""
        error = cls(f"run {run_id}: {reason}", hint)
        error.run_id, error.reason = run_id, reason
        return error
