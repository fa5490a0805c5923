"""The paths of gpuctl's files on a node."""

from config.errors import RunError
from config.identifiers import RUN_ID, is_valid
from engine.contract.names import ERROR_FILE
from nodes.inventory import Inventory

ENTER_MEMORY = (
    'cd "${GPUCTL_RUNTIME_DIR:-/run/gpuctl}" 2> /dev/null'
    ' || { [ -z "$GPUCTL_RUNTIME_DIR" ] && cd "/dev/shm/gpuctl-$(id -u)" 2> /dev/null; } || exit 0'
)
"""The shell command that enters the folder in memory for runs that go on; without one it ends."""


def runs_folder(inventory: Inventory) -> str:
    """Return the folder of all runs on every node."""
    return f"{inventory.remote_root}/runs"


class RunPaths:
    """The paths of a run's files, the same on every node; `runs` is the folder of all runs."""

    def __init__(self, runs: str, run_id: str) -> None:
        self.run_id = run_id
        self.folder = f"{runs}/{run_id}"
        """The run's folder."""
        self.work = f"{self.folder}/work"
        """The job's working folder; only runs with code or outputs have it."""
        self.hostfile = f"{self.folder}/hostfile"
        """The run's hostfile."""
        self.programs = f"{self.folder}/bin"
        """The folder of `ssh` and `with-env`, which the worker creates for launchers."""
        self.ssh = f"{self.programs}/ssh"
        """The program that launchers call as `ssh HOST words…` to start words on a node."""
        self.with_env = f"{self.programs}/with-env"
        """The program that executes its arguments with the node's environment of the run."""
        self.ranks = f"{self.folder}/ranks"
        """The FIFO into which each rank writes `RANK SIZE` when it starts."""
        self.failed = f"{self.folder}/failed"
        """The FIFO into which a rank that fails writes its exit status."""
        self.error = f"{self.folder}/{ERROR_FILE}"
        """The file to which torch writes the first exception of a rank of the node."""
        self.rank_script = f"{self.folder}/rank.sh"
        """The bash script that a launcher starts in every rank."""


def run_paths(inventory: Inventory, run_id: str) -> RunPaths:
    """Return the paths of the run's files; RunError for an id that is none."""
    if not is_valid(run_id, RUN_ID):
        raise RunError(f"{run_id!r} is no id of a run", "`gpuctl ps` lists the runs")
    return RunPaths(runs_folder(inventory), run_id)


def checkpoint_folder(paths: RunPaths, shared: str) -> str:
    """Return the folder that all attempts of a run have.

    It is in the cluster's shared storage, mounted at `shared`; if that is empty, in the run's
    folder on each node.
    """
    return f"{shared}/gpuctl/{paths.run_id}" if shared else f"{paths.folder}/checkpoints"


def saved_folder(run_id: str, shared: str) -> str:
    """Return the folder in the shared storage, mounted at `shared`, with what a run left behind.

    It is empty without shared storage. No run is called `saved`: ids end with six digits.
    """
    return f"{shared}/gpuctl/saved/{run_id}" if shared else ""
