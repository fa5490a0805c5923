"""Where gpuctl lies on a node."""

REMOTE_ROOT = "/var/lib/gpuctl"
"""Everything of gpuctl on a node: `agent-<hash>/`, `runs/<run-id>/`."""


def runs_folder() -> str:
    """Return the folder of all runs on every node."""
    return f"{REMOTE_ROOT}/runs"


def run_folder(run_id: str) -> str:
    """The run's folder on every node."""
    return f"{runs_folder()}/{run_id}"


def hostfile_path(run_id: str) -> str:
    """The run's hostfile on every node."""
    return f"{run_folder(run_id)}/hostfile"


def programs_path(run_id: str) -> str:
    """The folder of `ssh` and `with-env`, which the worker makes for launchers."""
    return f"{run_folder(run_id)}/bin"


def remote_agent_path(run_id: str) -> str:
    """What launchers call as `ssh HOST words…`: it enters that node's part of the run."""
    return f"{programs_path(run_id)}/ssh"


def with_env_path(run_id: str) -> str:
    """What execs its words with the node's environment of the run."""
    return f"{programs_path(run_id)}/with-env"


def ranks_path(run_id: str) -> str:
    """The FIFO into which each rank writes `RANK SIZE` when it starts."""
    return f"{run_folder(run_id)}/ranks"


def failed_path(run_id: str) -> str:
    """The FIFO into which a rank writes the status with which it failed."""
    return f"{run_folder(run_id)}/failed"


def rank_script_path(run_id: str) -> str:
    """What a launcher starts in every rank, by bash."""
    return f"{run_folder(run_id)}/rank.sh"


def agent_path(digest: str) -> str:
    """The agent's folder on a node: versions lie side by side, so that a run keeps its own."""
    return f"{REMOTE_ROOT}/agent-{digest}"
