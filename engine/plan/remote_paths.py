"""The paths of gpuctl's files on a node."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class RunPaths:
    """The paths of a run's files, the same on every node; `runs` is the folder of all runs."""

    runs: str
    run_id: str

    @property
    def folder(self) -> str:
        """The run's folder."""
        return f"{self.runs}/{self.run_id}"

    @property
    def work(self) -> str:
        """The job's working folder; only runs with code or outputs have it."""
        return f"{self.folder}/work"

    @property
    def hostfile(self) -> str:
        """The run's hostfile."""
        return f"{self.folder}/hostfile"

    @property
    def programs(self) -> str:
        """The folder of `ssh` and `with-env`, which the worker creates for launchers."""
        return f"{self.folder}/bin"

    @property
    def ssh(self) -> str:
        """The program that launchers call as `ssh HOST words…` to start words on a node."""
        return f"{self.programs}/ssh"

    @property
    def with_env(self) -> str:
        """The program that executes its arguments with the node's environment of the run."""
        return f"{self.programs}/with-env"

    @property
    def ranks(self) -> str:
        """The FIFO into which each rank writes `RANK SIZE` when it starts."""
        return f"{self.folder}/ranks"

    @property
    def failed(self) -> str:
        """The FIFO into which a rank that fails writes its exit status."""
        return f"{self.folder}/failed"

    @property
    def error(self) -> str:
        """The file to which torch writes the first exception of a rank of the node."""
        return f"{self.folder}/{ERROR_FILE}"

    @property
    def rank_script(self) -> str:
        """The bash script that a launcher starts in every rank."""
        return f"{self.folder}/rank.sh"


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
