"""Where gpuctl lies on a node."""

REMOTE_ROOT = "/var/lib/gpuctl"
"""Everything of gpuctl on a node: `agent-<hash>.pyz`, `runs/<run-id>/`."""


def run_folder(run_id: str) -> str:
    """The run's folder on every node."""
    return f"{REMOTE_ROOT}/runs/{run_id}"


def hostfile_path(run_id: str) -> str:
    """The run's hostfile on every node."""
    return f"{run_folder(run_id)}/hostfile"


def agent_path(digest: str) -> str:
    """The agent on a node: versions lie side by side, so that a run keeps its own."""
    return f"{REMOTE_ROOT}/agent-{digest}.pyz"
