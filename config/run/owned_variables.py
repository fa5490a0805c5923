"""Variables that a run file cannot set, because gpuctl or a launcher sets them.

One table for the check of `env`, for the plan (engine/plan/modes) and for docs/look-up/modes.md.
`RANK`
and `WORLD_SIZE` count nodes in TI-ONE and processes in torch; a type has only one of the meanings.

The tables of MPI's launchers serve runs, manifests and containers. Open MPI 4
(ORTE) and 5 (PRRTE) have different names for the same parameter, and each ignores the other's name.
MPICH and Intel MPI share Hydra, under different names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_DSTACK = "runner/internal/executor/executor.go of dstackai/dstack, 2026-11-20"
_TI_ONE = "Tencent Cloud TI-ONE, environment of its training modes, 2026-11-20"
_KUBEFLOW = "pkg/runtime/framework/plugins/mpi/mpi.go of kubeflow/trainer@8c0f5059, 2026-08-21"
_ORTE_TO_PRTE = "kubeflow/trainer#4028: Open MPI 5 ignores ORTE's names, 2026-11-20"
_OPENMPI = "docs.open-mpi.org v5.0, environment variables of launched processes, 2026-11-20"
_PRRTE = "docs/launching-apps/ssh.rst of openpmix/prrte@52d5e4bb, 2026-11-20"
_MPI_OPERATOR = "pkg/controller/mpi_job_controller.go of kubeflow/mpi-operator@caa3c47f, 2026-07-02"
_HYDRA = "`mpiexec -help` of MPICH 5.0 and of Intel MPI 2021.19, 2026-11-20"
_TORCHRUN = "torch/distributed/run.py of pytorch@010929fd, 2026-11-20"
_HOROVOD = "horovod/runner/gloo_run.py of horovod 0.28.1, 2026-11-20"
_DEEPSPEED = "deepspeed/launcher/runner.py and launch.py of DeepSpeed@2d991ba3, 2026-11-20"
_TENSORFLOW = "tensorflow.org, TFConfigClusterResolver, 2026-11-20"
_RAY = "docs.ray.io, cluster CLI and ray.init, 2026-11-20"


@dataclass(frozen=True)
class Owned:
    """A name or `PREFIX*`, its value, the source, who sets it (on every node or in every rank)."""

    name: str
    value: str
    source: str
    by: str = "gpuctl"

    @property
    def why(self) -> str:
        """The reason why a run file cannot set it."""
        return f"{self.by} sets it: {self.value}"


_EVERYWHERE = (
    Owned("DSTACK_*", "the node's place in the run, by dstack's names", _DSTACK),
    Owned("GPUCTL_*", "the node's place in the run", "docs/look-up/environment.md"),
)

_NODES = (
    Owned("NODE_LIST", "`IP:GPUS,…` of all nodes, in rank order", _TI_ONE),
    Owned("INDEX", "the node's number, 0 is the head", _TI_ONE),
)
_GPUS = (
    Owned("GPU_NUM", "GPUs of all nodes of the run", _TI_ONE),
    Owned("GPU_NUM_PER_NODE", "GPUs of this node", _TI_ONE),
)
_SLOTS = (Owned("NODE_IP_SLOT_LIST", "`IP:RANKS,…` of the nodes with ranks", _TI_ONE),)

_OPEN_MPI = (
    Owned("OMPI_MCA_orte_default_hostfile", "the hostfile, for Open MPI 4", _TI_ONE),
    Owned(
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "dotted host names are whole names, for Open MPI 4",
        _KUBEFLOW,
    ),
    Owned("OMPI_MCA_orte_set_default_slots", "ranks on a node, for Open MPI 4", _KUBEFLOW),
    Owned(
        "OMPI_MCA_plm_rsh_agent",
        "how Open MPI 4 enters the other nodes",
        "ompi_info --param plm rsh of Open MPI 4.1, 2026-11-20",
    ),
    Owned(
        "OMPI_MCA_plm_rsh_no_tree_spawn",
        "above 64 nodes: node 0 enters them all, for Open MPI 4",
        "open-mpi/ompi#4578, #7087: hangs where nodes enter nodes, 2026-11-20",
    ),
    Owned(
        "OMPI_MCA_plm_rsh_num_concurrent",
        "above 64 nodes: all at once, for Open MPI 4",
        "horovod/runner/mpi_run.py of horovod 0.28.1, 2026-11-20",
    ),
    Owned("PRTE_MCA_prte_default_hostfile", "the hostfile, for Open MPI 5", _ORTE_TO_PRTE),
    Owned(
        "PRTE_MCA_prte_keep_fqdn_hostnames",
        "dotted host names are whole names, for Open MPI 5",
        _ORTE_TO_PRTE,
    ),
    Owned("PRTE_MCA_prte_set_default_slots", "ranks on a node, for Open MPI 5", _ORTE_TO_PRTE),
    Owned("PRTE_MCA_plm_ssh_agent", "how Open MPI 5 enters the other nodes", _PRRTE),
    Owned(
        "PRTE_MCA_plm_ssh_no_tree_spawn",
        "above 64 nodes: node 0 enters them all, for Open MPI 5",
        "openpmix/prrte#476: hangs where nodes enter nodes, 2026-11-20",
    ),
    Owned("PRTE_MCA_plm_ssh_num_concurrent", "above 64 nodes: all at once, for Open MPI 5", _PRRTE),
    Owned("OMPI_COMM_WORLD_*", "its number, and how many there are", _OPENMPI, by="mpirun"),
)
_HYDRA_MPI = (
    Owned("HYDRA_HOST_FILE", "the hostfile, for MPICH", _MPI_OPERATOR),
    Owned("HYDRA_LAUNCHER", "MPICH calls HYDRA_LAUNCHER_EXEC as it would ssh", _HYDRA),
    Owned("HYDRA_LAUNCHER_EXEC", "how MPICH enters the other nodes", _HYDRA),
    Owned("I_MPI_HYDRA_HOST_FILE", "the hostfile, for Intel MPI", _MPI_OPERATOR),
    Owned("I_MPI_PERHOST", "ranks on a node, for Intel MPI", _MPI_OPERATOR),
    Owned(
        "I_MPI_HYDRA_BOOTSTRAP",
        "Intel MPI calls I_MPI_HYDRA_BOOTSTRAP_EXEC as it would ssh",
        _HYDRA,
    ),
    Owned("I_MPI_HYDRA_BOOTSTRAP_EXEC", "how Intel MPI enters the other nodes", _HYDRA),
    Owned("PMI_*", "its number, and how many there are", _HYDRA, by="mpirun"),
)

_MPI = (*_NODES, *_GPUS, *_SLOTS, *_OPEN_MPI, *_HYDRA_MPI)


def _torch_ranks(launcher: str, source: str) -> tuple[Owned, ...]:
    """Return the variables that torch's `env://` reads: `RANK` and `WORLD_SIZE` count processes."""
    return (
        Owned("RANK", "the RANK's number over all nodes", source, by=launcher),
        Owned("WORLD_SIZE", "how many RANKS there are", source, by=launcher),
        Owned("LOCAL_RANK", "the rank's number on its node", source, by=launcher),
        Owned("MASTER_ADDR", "where rank 0 is", source, by=launcher),
        Owned("MASTER_PORT", "where rank 0 listens", source, by=launcher),
    )


OWNED: Mapping[str, tuple[Owned, ...]] = {
    "task": _EVERYWHERE,
    "mpi": (*_EVERYWHERE, *_MPI),
    "nccl-tests": (*_EVERYWHERE, *_MPI),
    "ddp": (
        *_EVERYWHERE,
        *_NODES,
        Owned("MASTER_ADDR", "the address of node 0", _TI_ONE),
        Owned("MASTER_PORT", "the run's `port`, 23456 by default", _TI_ONE),
        Owned("WORLD_SIZE", "how many NODES there are", _TI_ONE),
        Owned("RANK", "the NODE's number", _TI_ONE),
        *_GPUS,
    ),
    "torchrun": (
        *_EVERYWHERE,
        Owned("PET_NNODES", "the number of nodes, or `MIN:MAX`", _TORCHRUN),
        Owned("PET_NPROC_PER_NODE", "ranks on a node", _TORCHRUN),
        Owned("PET_NODE_RANK", "without elasticity: the node's number", _TORCHRUN),
        Owned("PET_MASTER_ADDR", "without elasticity: node 0", _TORCHRUN),
        Owned("PET_MASTER_PORT", "without elasticity: the run's `port`", _TORCHRUN),
        Owned("PET_RDZV_BACKEND", "static, or c10d where ranks may come and go", _TORCHRUN),
        Owned("PET_RDZV_ENDPOINT", "for c10d: node 0 and the run's `port`", _TORCHRUN),
        Owned("PET_RDZV_CONF", "for c10d: node 0 is the one that listens", _TORCHRUN),
        Owned("PET_RDZV_ID", "the run's id", _TORCHRUN),
        Owned("PET_MAX_RESTARTS", "the run's `max_restarts`", _TORCHRUN),
        Owned("PET_LOCAL_ADDR", "the node's address, which others can reach", _TORCHRUN),
        *_torch_ranks("torchrun", _TORCHRUN),
        Owned("LOCAL_WORLD_SIZE", "ranks on its node", _TORCHRUN, by="torchrun"),
        Owned("GROUP_RANK", "its node's number", _TORCHRUN, by="torchrun"),
        Owned("GROUP_WORLD_SIZE", "how many nodes there are", _TORCHRUN, by="torchrun"),
        Owned("ROLE_NAME", "its role: default", _TORCHRUN, by="torchrun"),
        Owned("ROLE_RANK", "its number in its role", _TORCHRUN, by="torchrun"),
        Owned("ROLE_WORLD_SIZE", "how many ranks its role has", _TORCHRUN, by="torchrun"),
        Owned(
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
            "lines of `--tee` begin with `[rankN]:`",
            _TORCHRUN,
        ),
        Owned("TORCHELASTIC_*", "restarts so far, the run", _TORCHRUN, by="torchrun"),
    ),
    "horovod": (
        *_EVERYWHERE,
        *_NODES,
        *_GPUS,
        *_SLOTS,
        *_OPEN_MPI,
        Owned("HOROVOD_RANK", "its number", _HOROVOD, by="horovodrun"),
        Owned("HOROVOD_SIZE", "how many there are", _HOROVOD, by="horovodrun"),
        Owned("HOROVOD_LOCAL_*", "its number on its node", _HOROVOD, by="horovodrun"),
        Owned("HOROVOD_CROSS_*", "its node's number", _HOROVOD, by="horovodrun"),
        Owned("HOROVOD_HOSTNAME", "its node", _HOROVOD, by="horovodrun"),
        Owned("HOROVOD_GLOO_RENDEZVOUS_*", "where it listens", _HOROVOD, by="horovodrun"),
    ),
    "deepspeed": (
        *_EVERYWHERE,
        Owned("DS_ENV_FILE", "the run's `.deepspeed_env`", _DEEPSPEED),
        Owned("PDSH_RCMD_TYPE", "pdsh goes by ssh", _DEEPSPEED, by="DeepSpeed"),
        *_torch_ranks("DeepSpeed", _DEEPSPEED),
        Owned("LOCAL_SIZE", "ranks on its node", _DEEPSPEED, by="DeepSpeed"),
        Owned("CROSS_RANK", "its node's number", _DEEPSPEED, by="DeepSpeed"),
        Owned("CROSS_SIZE", "how many nodes there are", _DEEPSPEED, by="DeepSpeed"),
    ),
    "ps-worker": (
        *_EVERYWHERE,
        *_NODES,
        *_GPUS,
        Owned("TF_CONFIG", "all servers, and which of them the node is", _TENSORFLOW),
    ),
    "ray": (
        *_EVERYWHERE,
        *_NODES,
        *_GPUS,
        Owned("HEAD_ADDR", "the address of the head", _TI_ONE),
        Owned("HEAD_PORT", "the run's `port`, 6379 by default", _TI_ONE),
        Owned("RANK", "the NODE's number, 0 is the head", _TI_ONE),
        Owned("RAY_ADDRESS", "the cluster that `ray.init()` joins", _RAY),
    ),
}
"""The variables by the run's type, in the order of the documentation."""


def owner(run_type: str, name: str) -> Owned | None:
    """Return the row of the variable's owner, or None if the user may set the variable."""
    for row in OWNED[run_type]:
        if row.name == name or (row.name.endswith("*") and name.startswith(row.name[:-1])):
            return row
    return None


OPEN_MPI_TREE_LIMIT = 64
"""The number of nodes up to which Open MPI connects to every node from node 0.

Above it, by default, nodes connect to other nodes, which has hung (routed_radix of Open MPI 4,
rml_base_radix of PRRTE; open-mpi/ompi#4578, openpmix/prrte#476; 2026-11-20).
"""

OPEN_MPI_INTERFACES = {"OMPI_MCA_btl_tcp_if_exclude": "lo,docker0"}
"""Open MPI's default unless the file chooses interfaces: docker0 has the same address on every node
(dstack's example of an MPI task, 2026-11-20)."""

OPEN_MPI_AGENT = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")
"""The variables that name the program with which Open MPI connects to other nodes."""

_OPEN_MPI_FAMILIES = ("OMPI_MCA_orte", "PRTE_MCA_prte")
OPEN_MPI_HOSTFILE = tuple(f"{family}_default_hostfile" for family in _OPEN_MPI_FAMILIES)
"""The variables that name Open MPI's default hostfile."""

HYDRA_AGENT = (
    ("HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC"),
    ("I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"),
)
"""Pairs of variables: the launcher's kind, and its program.

`engine/agent/node/container.py` sets these and OPEN_MPI_AGENT too: it runs on nodes, and cannot
import gpuctl."""


def open_mpi_hosts(hostfile: str, slots: int, nodes: int) -> dict[str, str]:
    """Return the variables that give Open MPI its hostfile and `slots` ranks on a node."""
    variables = {}
    for family, name in zip(_OPEN_MPI_FAMILIES, OPEN_MPI_HOSTFILE, strict=True):
        variables[name] = hostfile
        variables[f"{family}_keep_fqdn_hostnames"] = "true"
        variables[f"{family}_set_default_slots"] = str(slots)
    if nodes > OPEN_MPI_TREE_LIMIT:
        for launcher in ("OMPI_MCA_plm_rsh", "PRTE_MCA_plm_ssh"):
            variables[f"{launcher}_no_tree_spawn"] = "1"
            variables[f"{launcher}_num_concurrent"] = str(nodes)
    return variables
