"""Variables that configure MPI's launchers: one table for runs, manifests and containers.

Open MPI 4 (ORTE) and 5 (PRRTE) have different names for the same parameter, and each ignores the
other's name. MPICH and Intel MPI share Hydra, under different names.
"""

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
