"""`type: horovod`: horovodrun on node 0 starts the commands in every rank.

horovodrun writes its environment into the arguments of ssh. It is started without the run's
variables but its own (`HOROVOD_*`); each rank gets those of its node.
"""

from config.run.run_file import Horovod
from engine.hostfile import host_list, hostfile
from engine.modes.job import Job, Launch, Part, led_by_head
from engine.modes.mpirun import open_mpi_environment
from engine.places import programs_path, rank_script_path, with_env_path
from engine.script import (
    call,
    job_script,
    require,
    tell_failure,
    tell_rank,
    until_failure,
    without,
)


def launch(job: Job[Horovod]) -> Launch:
    """The launcher's node has ranks too; workers wait."""
    slots = job.processes(job.run.procs_per_node)
    # Horovod may be built on Gloo or on MPI: horovodrun takes what is there.
    prelude = tell_rank(
        job.run_id,
        "${HOROVOD_RANK:-${OMPI_COMM_WORLD_RANK-}}",
        "${HOROVOD_SIZE:-${OMPI_COMM_WORLD_SIZE-}}",
    ) + tell_failure(job.run_id)

    def part(rank: int) -> Part:
        return Part(
            script=until_failure(job.run_id) if rank else _head(job, slots),
            environment={
                **job.ti_one(rank),
                "NODE_IP_SLOT_LIST": host_list(slots),
                **open_mpi_environment(job, slots),
            },
            files={"rank.sh": prelude + job_script(job.commands(rank))},
            processes=slots[job.nodes[rank].private_ip],
        )

    return led_by_head((part(node.rank) for node in job.nodes), hostfile(slots))


def _interface(job: Job[Horovod]) -> list[str]:
    """The nodes' interface, where bootstrap found it: Horovod need not look for one then.

    With one node it takes `lo`, and refuses another (driver_service.py of horovod 0.28.1).
    """
    names = {node.interface for node in job.nodes}
    is_known = len(names) == 1 and all(names) and len(job.nodes) > 1
    return ["--network-interfaces", *names] if is_known else []


def _head(job: Job[Horovod], slots: dict[str, int]) -> str:
    rank = [with_env_path(job.run_id), "bash", rank_script_path(job.run_id)]
    hosts = ["-np", str(sum(slots.values())), "-H", host_list(slots)]
    command = ["horovodrun", *hosts, *_interface(job), *rank]
    return (
        require("horovodrun", "Horovod")
        + f"export PATH={programs_path(job.run_id)}:$PATH\n"
        + without(job.hidden("HOROVOD_"))
        + until_failure(job.run_id, call(*command))
    )
