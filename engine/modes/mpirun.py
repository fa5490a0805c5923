"""How each implementation's mpirun is found and called: hostfile, way to the nodes, environment.

mpirun enters the other nodes by the run's own remote agent (`<run>/bin/ssh`), which gives what it
starts there that node's environment. So nothing of the environment has to go through mpirun: Open
MPI is told the names that are alike on all nodes, and none that differ or are secret; Hydra, which
would carry the head's whole environment to every rank, is told to carry none.
"""

from collections.abc import Callable, Mapping, Sequence

from config.run.launchers import (
    OPEN_MPI_AGENT,
    OPEN_MPI_INTERFACES,
    open_mpi_hosts,
)
from config.run.run_file import Mpirun, Run
from engine.hostfile import host_list, hostfile, hydra_hostfile
from engine.modes.job import Job, Launch, Part, led_by_head
from engine.places import hostfile_path, remote_agent_path
from engine.script import WAIT, call, tell_rank

_FIND = """\
for gpuctl_mpirun in {candidates}; do
  case "$("$gpuctl_mpirun" --version 2>/dev/null)" in
{versions}  esac
  gpuctl_mpirun=
done
if [ -z "$gpuctl_mpirun" ]; then
  echo "gpuctl: $GPUCTL_NODE_NAME has no {name}, neither on PATH nor where it is installed; \
the image or the nodes' setup has to bring it" >&2
  exit 127
fi
gpuctl_ranks() {{
  "$gpuctl_mpirun" {options} "$@"
}}
"""
_OPEN_MPI = "mpirun mpirun.openmpi /opt/amazon/openmpi5/bin/mpirun /opt/amazon/openmpi/bin/mpirun"
_MPICH = "mpiexec.mpich mpiexec.hydra mpiexec mpirun"
_INTEL = "mpiexec.hydra mpiexec mpirun /opt/intel/oneapi/mpi/latest/bin/mpiexec.hydra"


def mpirun_launch(job: Job[Mpirun], commands: str, rank_scripts: Sequence[str]) -> Launch:
    """The head runs `commands`, in which the function `gpuctl_ranks` starts ranks; workers wait."""
    slots = rank_slots(job)
    find, environment, dialect = _DIALECTS[job.run.implementation]
    head = find(job, slots) + commands

    def part(rank: int) -> Part:
        return Part(
            script=WAIT if rank else head,
            environment={
                **job.ti_one(rank),
                "NODE_IP_SLOT_LIST": host_list(slots),
                **environment(job, slots),
            },
            files={"rank.sh": rank_scripts[rank]},
            processes=slots.get(job.nodes[rank].private_ip, 0),
        )

    return led_by_head((part(node.rank) for node in job.nodes), dialect(slots))


def rank_slots(job: Job[Mpirun]) -> dict[str, int]:
    """Ranks by the node's address, without the launcher's where it is no node."""
    slots = job.processes(job.run.procs_per_node)
    if not job.run.launcher_as_node:
        del slots[job.head]
    return slots


def rank_prelude(job: Job[Run]) -> str:
    """The first line of a rank's script, under whatever mpirun."""
    return tell_rank(
        job.run_id,
        "${OMPI_COMM_WORLD_RANK:-${PMI_RANK-}}",
        "${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE-}}",
    )


def open_mpi_environment(job: Job[Run], slots: Mapping[str, int]) -> dict[str, str]:
    """Open MPI's parameters in the names of 4 and of 5, each of which ignores the other's.

    For what calls mpirun in its own way: the command of the mode says the same explicitly.
    """
    found = open_mpi_hosts(hostfile_path(job.run_id), max(slots.values()), len(job.nodes))
    return found | dict.fromkeys(OPEN_MPI_AGENT, remote_agent_path(job.run_id))


def open_mpi_defaults(run: Run) -> dict[str, str]:
    """OPEN_MPI_INTERFACES where the run uses Open MPI and chooses no interfaces itself."""
    if not isinstance(run, Mpirun) or run.implementation != "openmpi":
        return {}
    said = [*run.env, *(name for role in run.roles.values() for name in role.env), *run.mpirun_args]
    return {} if any("btl_tcp_if_" in word for word in said) else OPEN_MPI_INTERFACES


def _open_mpi(job: Job[Mpirun], slots: Mapping[str, int]) -> str:
    run, agent = job.run, remote_agent_path(job.run_id)
    names = (word for name in _exported(job) for word in ("-x", name))
    options = [
        *("--allow-run-as-root", "--hostfile", hostfile_path(job.run_id)),
        *("-np", str(sum(slots.values()))),
        *("--map-by", run.placement.by, "--bind-to", run.placement.bind),
        *names,
        *run.mpirun_args,
    ]
    versions = {
        # Called as mpirun.openmpi, version 4 says OpenRTE.
        "*'(Open MPI) '[1-4].* | *'(OpenRTE) '*": call("--mca", "plm_rsh_agent", agent),
        "*'(Open MPI) '*": call("--prtemca", "plm_ssh_agent", agent),
    }
    cases = "".join(
        f"    {form}) gpuctl_agent=({words}); break ;;\n" for form, words in versions.items()
    )
    return _FIND.format(
        candidates=_OPEN_MPI,
        versions=cases,
        name="Open MPI",
        options='"${gpuctl_agent[@]}" ' + call(*options),
    )


def _exported(job: Job[Mpirun]) -> list[str]:
    """Variables that mpirun may pass on: those that have the same value on every node.

    Open MPI passes its own on by itself.
    """
    return [name for name in job.alike() if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))]


def _mpich(job: Job[Mpirun], slots: Mapping[str, int]) -> str:
    bind = ["-bind-to", job.run.placement.bind]
    return _FIND.format(
        candidates=_MPICH,
        versions="    HYDRA*) break ;;\n",
        name="MPICH",
        options=call(*_hydra_options(job, slots), *bind, *job.run.mpirun_args),
    )


def _intel(job: Job[Mpirun], slots: Mapping[str, int]) -> str:
    bind = job.run.placement.bind
    pin = ("I_MPI_PIN", "0") if bind == "none" else ("I_MPI_PIN_DOMAIN", bind)
    return _FIND.format(
        candidates=_INTEL,
        versions="    *'Intel(R) MPI Library'*) break ;;\n",
        name="Intel MPI",
        options=call(*_hydra_options(job, slots), "-genv", *pin, *job.run.mpirun_args),
    )


def _hydra_options(job: Job[Mpirun], slots: Mapping[str, int]) -> list[str]:
    """`-localhost`: the nodes call back to an address, whatever the head's host name is there."""
    per_node = 1 if job.run.placement.by == "node" else max(slots.values())
    return [
        *("-f", hostfile_path(job.run_id), "-n", str(sum(slots.values())), "-ppn", str(per_node)),
        *("-launcher", "ssh", "-launcher-exec", remote_agent_path(job.run_id)),
        *("-localhost", job.head, "-genvnone"),
    ]


def _mpich_environment(job: Job[Run], slots: Mapping[str, int]) -> dict[str, str]:
    return {
        "HYDRA_HOST_FILE": hostfile_path(job.run_id),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": remote_agent_path(job.run_id),
    }


def _intel_environment(job: Job[Run], slots: Mapping[str, int]) -> dict[str, str]:
    return {
        "I_MPI_HYDRA_HOST_FILE": hostfile_path(job.run_id),
        "I_MPI_PERHOST": str(max(slots.values())),
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": remote_agent_path(job.run_id),
    }


_Slots = Mapping[str, int]
_DIALECTS: Mapping[
    str,
    tuple[
        Callable[[Job[Mpirun], _Slots], str],
        Callable[[Job[Run], _Slots], dict[str, str]],
        Callable[[_Slots], str],
    ],
] = {
    "openmpi": (_open_mpi, open_mpi_environment, hostfile),
    "mpich": (_mpich, _mpich_environment, hydra_hostfile),
    "intel": (_intel, _intel_environment, hydra_hostfile),
}
"""How mpirun is found and called, what it finds in its environment, and its hostfile."""
