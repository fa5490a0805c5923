"""`type: horovod`: horovodrun on node 0 starts the commands in every rank.

horovodrun writes its environment into the arguments of ssh. So gpuctl starts it without the run's
variables, except for `HOROVOD_*`; each rank gets the variables of its node.
"""

from config.run.run_file import Horovod
from engine.plan.modes.job import Job, Launch, Part, head_led_launch, host_list, hostfile
from engine.plan.modes.mpirun import open_mpi_environment
from engine.plan.script import (
    quote_words,
    report_failure,
    report_rank,
    require_program,
    run_rank,
    run_until_failure,
    unset_variables,
)


def launch(job: Job[Horovod]) -> Launch:
    """Return the launch: the head starts the launcher and has ranks too; workers wait for ranks."""
    slots = job.processes(job.run.procs_per_node)
    # horovodrun uses Gloo or MPI, whichever Horovod was built with.
    prelude = report_rank(
        job.paths,
        "${HOROVOD_RANK:-${OMPI_COMM_WORLD_RANK-}}",
        "${HOROVOD_SIZE:-${OMPI_COMM_WORLD_SIZE-}}",
    ) + report_failure(job.paths)

    def part(rank: int) -> Part:
        return Part(
            script=run_until_failure(job.paths) if rank else _head(job, slots),
            environment={
                **job.ti_one_environment(rank),
                "NODE_IP_SLOT_LIST": host_list(slots),
                **open_mpi_environment(job, slots),
            },
            files=run_rank(job.paths, prelude, job.commands(rank)),
            processes=slots[job.nodes[rank].private_ip],
        )

    return head_led_launch((part(node.rank) for node in job.nodes), hostfile(slots))


def _interface(job: Job[Horovod]) -> list[str]:
    """Return the option with the nodes' interface, if bootstrap found it, to skip Horovod's search.

    With one node Horovod uses `lo`, and rejects others (driver_service.py of horovod 0.28.1).
    """
    names = {node.interface for node in job.nodes}
    is_known = len(names) == 1 and all(names) and len(job.nodes) > 1
    return ["--network-interfaces", *names] if is_known else []


def _head(job: Job[Horovod], slots: dict[str, int]) -> str:
    rank = [job.paths.with_env, "bash", job.paths.rank_script]
    hosts = ["-np", str(sum(slots.values())), "-H", host_list(slots)]
    command = ["horovodrun", *hosts, *_interface(job), *rank]
    return (
        require_program("horovodrun", "Horovod")
        + f"export PATH={job.paths.programs}:$PATH\n"
        + unset_variables(job.hidden_variables("HOROVOD_"))
        + run_until_failure(job.paths, quote_words(*command))
    )
