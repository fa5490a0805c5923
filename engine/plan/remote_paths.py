"""The paths of gpuctl's files on a node."""

from config.errors import RunError
from config.identifiers import RUN_ID, is_valid
from engine.contract.names import ERROR_FILE

REMOTE_ROOT = "/var/lib/gpuctl"
"""The folder with all of gpuctl's files on a node: `agent-<hash>/`, `runs/<run-id>/`."""


def runs_folder() -> str:
    """Return the folder of all runs on every node."""
    return f"{REMOTE_ROOT}/runs"


def run_folder(run_id: str) -> str:
    """Return the run's folder on every node; RunError for an id that is none."""
    if not is_valid(run_id, RUN_ID):
        raise RunError(f"{run_id!r} is no id of a run", "`gpuctl ps` lists the runs")
    return f"{runs_folder()}/{run_id}"


def work_folder(run_id: str) -> str:
    """Return the job's working folder on every node; only runs with code or outputs have it."""
    return f"{run_folder(run_id)}/work"


def checkpoint_folder(run_id: str, shared: str) -> str:
    """Return the folder that all attempts of a run have.

    It is in the cluster's shared storage, mounted at `shared`; if that is empty, in the run's
    folder on each node.
    """
    return f"{shared}/gpuctl/{run_id}" if shared else f"{run_folder(run_id)}/checkpoints"


def saved_folder(run_id: str, shared: str) -> str:
    """Return the folder in the shared storage, mounted at `shared`, with what a run left behind.

    It is empty without shared storage. No run is called `saved`: ids end with six digits.
    """
    return f"{shared}/gpuctl/saved/{run_id}" if shared else ""


def hostfile_path(run_id: str) -> str:
    """Return the path of the run's hostfile on every node."""
    return f"{run_folder(run_id)}/hostfile"


def programs_path(run_id: str) -> str:
    """Return the folder of `ssh` and `with-env`, which the worker creates for launchers."""
    return f"{run_folder(run_id)}/bin"


def remote_agent_path(run_id: str) -> str:
    """Return the program that launchers call as `ssh HOST words…` to start words on a node."""
    return f"{programs_path(run_id)}/ssh"


def with_env_path(run_id: str) -> str:
    """Return the program that executes its arguments with the node's environment of the run."""
    return f"{programs_path(run_id)}/with-env"


def ranks_path(run_id: str) -> str:
    """Return the FIFO into which each rank writes `RANK SIZE` when it starts."""
    return f"{run_folder(run_id)}/ranks"


def failed_path(run_id: str) -> str:
    """Return the FIFO into which a rank that fails writes its exit status."""
    return f"{run_folder(run_id)}/failed"


def error_path(run_id: str) -> str:
    """Return the file to which torch writes the first exception of a rank of the node."""
    return f"{run_folder(run_id)}/{ERROR_FILE}"


def rank_script_path(run_id: str) -> str:
    """Return the bash script that a launcher starts in every rank."""
    return f"{run_folder(run_id)}/rank.sh"


def agent_path(digest: str) -> str:
    """Return the agent's folder on a node; each version has its own, so a run keeps its agent."""
    return f"{REMOTE_ROOT}/agent-{digest}"
