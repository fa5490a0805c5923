"""`type: mpi`, and the call of mpirun for each implementation of MPI.

A call has a program, a hostfile, a remote agent and an environment.

mpirun starts processes on the other nodes with the run's remote agent (`<run>/bin/ssh`). The agent
gives them their node's environment, so mpirun does not have to pass it on. Open MPI gets the names
of variables that are equal on all nodes, but none that differ or are secret. Hydra would pass the
head's whole environment to every rank; an option disables that.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from config.run.owned_variables import (
    OPEN_MPI_AGENT,
    OPEN_MPI_HOSTFILE,
    OPEN_MPI_INTERFACES,
    open_mpi_hosts,
)
from config.run.run_file import Mpi, Mpirun, Run
from engine.plan.modes.job import (
    Job,
    Launch,
    Part,
    head_led_launch,
    host_list,
    hostfile,
    hydra_hostfile,
)
from engine.plan.script import WAIT, job_script, quote_words, report_rank

_FIND = """\
for gpuctl_mpirun in {candidates}; do
  case "$("$gpuctl_mpirun" --version 2>/dev/null)" in
{versions}  esac
  gpuctl_mpirun=
done
if [ -z "$gpuctl_mpirun" ]; then
  echo "gpuctl: $GPUCTL_NODE_NAME has no {name}, neither on PATH nor in its usual folders; \
install it in the image or on the nodes" >&2
  exit 127
fi
"""
_RANKS = """\
{function}() {{
  {environment}"$gpuctl_mpirun" {options} "$@"
}}
"""
_OPEN_MPI = "mpirun mpirun.openmpi /opt/amazon/openmpi5/bin/mpirun /opt/amazon/openmpi/bin/mpirun"
_MPICH = "mpiexec.mpich mpiexec.hydra mpiexec mpirun"
_INTEL = "mpiexec.hydra mpiexec mpirun /opt/intel/oneapi/mpi/latest/bin/mpiexec.hydra"

FIND_OPEN_MPI = _FIND.format(
    candidates=_OPEN_MPI,
    versions="    *'(Open MPI) '* | *'(OpenRTE) '*) break ;;\n",
    name="Open MPI",
)
"""Shell text that sets `gpuctl_mpirun`, for scripts that name the agent in OPEN_MPI_AGENT."""


@dataclass(frozen=True)
class Layout:
    """Some of a run's ranks: `slots` are ranks by node address; `number` is 0 for all ranks.

    In the head's script `function` starts them.
    """

    slots: Mapping[str, int]
    number: int = 0

    @property
    def function(self) -> str:
        """The name of the function in the head's script."""
        return f"gpuctl_ranks_{self.number}" if self.number else "gpuctl_ranks"

    @property
    def hostfile(self) -> str:
        """The name of the hostfile in the run's folder."""
        return f"hostfile-{self.number}" if self.number else "hostfile"


def mpirun_launch(
    job: Job[Mpirun],
    commands: str,
    rank_scripts: Sequence[str],
    layouts: Sequence[Layout] | None = None,
) -> Launch:
    """Return the launch: the head runs `commands`, which call the functions of the layouts.

    Without `layouts` there is one, with all ranks: `gpuctl_ranks`. The number of ranks on each
    node is checked if all ranks start at least once.
    """
    slots = rank_slots(job)
    layouts = layouts or [Layout(slots)]
    dialect = _DIALECTS[job.run.implementation]
    calls = (
        _RANKS.format(function=layout.function, **dialect.call(job, layout)) for layout in layouts
    )
    head = _FIND.format(**dialect.find(job)) + "".join(calls) + commands
    hostfiles = {
        layout.hostfile: dialect.hostfile(layout.slots) for layout in layouts if layout.number
    }
    checked = slots if any(layout.number == 0 for layout in layouts) else {}

    def part(rank: int) -> Part:
        return Part(
            script=WAIT if rank else head,
            environment={
                **job.ti_one_environment(rank),
                "NODE_IP_SLOT_LIST": host_list(slots),
                **dialect.environment(job, slots),
            },
            files={"rank.sh": rank_scripts[rank], **({} if rank else hostfiles)},
            processes=checked.get(job.nodes[rank].private_ip, 0),
        )

    return head_led_launch((part(node.rank) for node in job.nodes), dialect.hostfile(slots))


def rank_slots(job: Job[Mpirun]) -> dict[str, int]:
    """Return ranks by node address; without the head if `launcher_as_node` is false."""
    slots = job.processes(job.run.procs_per_node)
    if not job.run.launcher_as_node:
        del slots[job.head]
    return slots


def rank_prelude(job: Job[Run]) -> str:
    """Return the first line of a rank's script, for every implementation of mpirun."""
    return report_rank(
        job.paths,
        "${OMPI_COMM_WORLD_RANK:-${PMI_RANK-}}",
        "${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE-}}",
    )


def open_mpi_environment(job: Job[Run], slots: Mapping[str, int]) -> dict[str, str]:
    """Return Open MPI's parameters, named for both version 4 and 5; each ignores the other's.

    They are for jobs that call mpirun themselves; gpuctl's own command has the same as options.
    """
    hosts = open_mpi_hosts(job.paths.hostfile, max(slots.values()), len(job.nodes))
    return hosts | dict.fromkeys(OPEN_MPI_AGENT, job.paths.ssh)


def open_mpi_defaults(run: Run) -> dict[str, str]:
    """Return OPEN_MPI_INTERFACES if the run uses Open MPI and does not choose interfaces itself."""
    if not isinstance(run, Mpirun) or run.implementation != "openmpi":
        return {}
    own = [*run.env, *(name for role in run.roles.values() for name in role.env), *run.mpirun_args]
    return {} if any("btl_tcp_if_" in word for word in own) else OPEN_MPI_INTERFACES


def _find_open_mpi(job: Job[Mpirun]) -> dict[str, str]:
    agent = job.paths.ssh
    versions = {
        # Version 4, called as mpirun.openmpi, prints OpenRTE.
        "*'(Open MPI) '[1-4].* | *'(OpenRTE) '*": quote_words("--mca", "plm_rsh_agent", agent),
        "*'(Open MPI) '*": quote_words("--prtemca", "plm_ssh_agent", agent),
    }
    cases = "".join(
        f"    {form}) gpuctl_agent=({words}); break ;;\n" for form, words in versions.items()
    )
    return {"candidates": _OPEN_MPI, "versions": cases, "name": "Open MPI"}


def _call_open_mpi(job: Job[Mpirun], layout: Layout) -> dict[str, str]:
    hosts = _layout_path(job, layout)
    names = (word for name in _exported(job) for word in ("-x", name))
    options = [
        "--allow-run-as-root",
        "--hostfile",
        hosts,
        "-np",
        str(sum(layout.slots.values())),
        "--map-by",
        job.run.placement.by,
        "--bind-to",
        job.run.placement.bind,
        *names,
        *job.run.mpirun_args,
    ]
    # Otherwise the run's hostfile, which the environment names, would count too.
    own = "".join(f"{name}={shlex.quote(hosts)} " for name in OPEN_MPI_HOSTFILE)
    return {
        "environment": own if layout.number else "",
        "options": '"${gpuctl_agent[@]}" ' + quote_words(*options),
    }


def _layout_path(job: Job[Run], layout: Layout) -> str:
    return f"{job.paths.folder}/{layout.hostfile}"


def _exported(job: Job[Mpirun]) -> list[str]:
    """Return the variables that mpirun passes on: those with the same value on every node.

    Without Open MPI's own variables, which it passes on anyway.
    """
    return [
        name for name in job.common_variables() if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))
    ]


def _find_mpich(job: Job[Mpirun]) -> dict[str, str]:
    return {"candidates": _MPICH, "versions": "    HYDRA*) break ;;\n", "name": "MPICH"}


def _call_mpich(job: Job[Mpirun], layout: Layout) -> dict[str, str]:
    return _call_hydra(job, layout, "-bind-to", job.run.placement.bind)


def _find_intel(job: Job[Mpirun]) -> dict[str, str]:
    versions = "    *'Intel(R) MPI Library'*) break ;;\n"
    return {"candidates": _INTEL, "versions": versions, "name": "Intel MPI"}


def _call_intel(job: Job[Mpirun], layout: Layout) -> dict[str, str]:
    bind = job.run.placement.bind
    pin = ("I_MPI_PIN", "0") if bind == "none" else ("I_MPI_PIN_DOMAIN", bind)
    return _call_hydra(job, layout, "-genv", *pin)


def _call_hydra(job: Job[Mpirun], layout: Layout, *pin: str) -> dict[str, str]:
    """Return Hydra's options; `-localhost` makes nodes connect back to the head's address."""
    slots = layout.slots
    per_node = 1 if job.run.placement.by == "node" else max(slots.values())
    options = [
        "-f",
        _layout_path(job, layout),
        "-n",
        str(sum(slots.values())),
        "-ppn",
        str(per_node),
        "-launcher",
        "ssh",
        "-launcher-exec",
        job.paths.ssh,
        "-localhost",
        job.head,
        "-genvnone",
        *pin,
        *job.run.mpirun_args,
    ]
    return {"environment": "", "options": quote_words(*options)}


def _mpich_environment(job: Job[Run], slots: Mapping[str, int]) -> dict[str, str]:
    return {
        "HYDRA_HOST_FILE": job.paths.hostfile,
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": job.paths.ssh,
    }


def _intel_environment(job: Job[Run], slots: Mapping[str, int]) -> dict[str, str]:
    return {
        "I_MPI_HYDRA_HOST_FILE": job.paths.hostfile,
        "I_MPI_PERHOST": str(max(slots.values())),
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": job.paths.ssh,
    }


class _Dialect(NamedTuple):
    """An implementation of MPI: what finds and calls its mpirun, environment and hostfile."""

    find: Callable[[Job[Mpirun]], dict[str, str]]
    call: Callable[[Job[Mpirun], Layout], dict[str, str]]
    environment: Callable[[Job[Run], Mapping[str, int]], dict[str, str]]
    hostfile: Callable[[Mapping[str, int]], str]


_DIALECTS: Mapping[str, _Dialect] = {
    "openmpi": _Dialect(_find_open_mpi, _call_open_mpi, open_mpi_environment, hostfile),
    "mpich": _Dialect(_find_mpich, _call_mpich, _mpich_environment, hydra_hostfile),
    "intel": _Dialect(_find_intel, _call_intel, _intel_environment, hydra_hostfile),
}


def launch(job: Job[Mpi]) -> Launch:
    """Return the launch of `type: mpi`, one mpirun.

    The commands of a rank are those of its node's role.
    """
    prelude = rank_prelude(job)
    return mpirun_launch(
        job,
        quote_words("gpuctl_ranks", "bash", job.paths.rank_script) + "\n",
        [job_script(job.commands(node.rank), before=prelude) for node in job.nodes],
    )
