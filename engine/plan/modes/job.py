"""Input and output of the modules in plan/modes: a run on its nodes, each part, and hostfiles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from config.cluster.cluster_file import Command
from config.run.elastic import NodeRange
from config.run.run_file import Run, StartupOrder, Torchrun
from engine.contract.node_plan import ReadyPlan
from engine.contract.plan import Case
from engine.plan.remote_paths import RunPaths
from nodes.inventory import Node

R = TypeVar("R", bound=Run)
R_co = TypeVar("R_co", bound=Run, covariant=True)


@dataclass(frozen=True)
class Variables:
    """A node's variables from the network preset, overridden by those of the run file.

    `values` are plain; `secrets` maps a variable to the name of its secret.
    """

    values: Mapping[str, str]
    secrets: Mapping[str, str]


@dataclass(frozen=True)
class Job(Generic[R_co]):
    """A run on its nodes. Everything is in rank order; the first node is the master.

    It is the cluster's head, unless another run has that node.
    """

    run: R_co
    paths: RunPaths
    nodes: tuple[Node, ...]
    roles: tuple[str, ...]
    variables: tuple[Variables, ...]

    @property
    def head(self) -> str:
        """The master's private address."""
        return self.nodes[0].private_ip

    def commands(self, rank: int) -> tuple[Command, ...]:
        """Return the commands of this node: its role's, else the run's."""
        role = self.run.roles.get(self.roles[rank])
        if role is not None and role.commands is not None:
            return role.commands
        return getattr(self.run, "commands", None) or ()

    def processes(self, per_node: int | None) -> dict[str, int]:
        """Return the number of ranks by node address; by default one per GPU, 1 without GPUs."""
        return {node.private_ip: per_node or node.slots for node in self.nodes}

    def gpus(self) -> dict[str, int]:
        """Return the number of GPUs by node address."""
        return {node.private_ip: node.gpus for node in self.nodes}

    def common_variables(self) -> dict[str, str]:
        """Return the variables, without secrets, that have the same value on every node."""
        first, *others = (own.values for own in self.variables)
        return {
            name: value
            for name, value in first.items()
            if all(own.get(name) == value for own in others)
        }

    def ti_one_environment(self, rank: int) -> dict[str, str]:
        """Return TI-ONE's variables for the node's position among the nodes."""
        return {
            "NODE_LIST": host_list(self.gpus()),
            "INDEX": str(rank),
            "GPU_NUM": str(sum(node.gpus for node in self.nodes)),
            "GPU_NUM_PER_NODE": str(self.nodes[rank].gpus),
        }

    def hidden_variables(self, *own: str) -> tuple[str, ...]:
        """Return the head's variables that a launcher does not need, secrets first.

        Launchers that write their environment into the arguments of ssh are started without them;
        ranks get them from their node. Not included are variables for finding programs and
        libraries, and the launcher's own variables, which begin with one of `own`.
        """
        head = self.variables[0]
        return (
            *head.secrets,
            *(n for n in head.values if n not in _FIND_PROGRAMS and not n.startswith(own)),
        )


_FIND_PROGRAMS = {"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "HOME"}


@dataclass(frozen=True)
class Part:
    """A node's part of a run: its script, and the environment and files of its type.

    `files` maps names in the run's folder to their text. `processes` is the number of ranks that a
    launcher must start here, 0 if gpuctl does not check the number.
    """

    script: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    processes: int = 0


@dataclass(frozen=True)
class Launch:
    """The launch of a job. `parts` are in rank order; `hostfile` is the same on every node.

    `ready`, `startup_order`, `stop_criteria` and `dashboard` are as in LaunchPlan. `cases` are
    those of nccl-tests, in order.
    """

    parts: tuple[Part, ...]
    hostfile: str
    startup_order: StartupOrder = "any"
    stop_criteria: Literal["all-done", "master-done", "workers-done"] = "all-done"
    ready: ReadyPlan | None = None
    dashboard: str = ""
    cases: tuple[Case, ...] = ()


def head_led_launch(parts: Iterable[Part], hostfile: str) -> Launch:
    """Return a launch whose head starts after the workers, and whose head's end ends the run."""
    return Launch(
        parts=tuple(parts),
        hostfile=hostfile,
        startup_order="workers-first",
        stop_criteria="master-done",
    )


def roles_of(run: Run, count: int) -> tuple[str, ...]:
    """Return the role of each of `count` nodes: the type's first role, then the file's order.

    A role without a number gets the remaining nodes. If all roles have a number, the remaining
    nodes get the type's second role.
    """
    first, second = run.ROLES
    numbers = {name: role.nodes for name, role in run.roles.items() if name != first}
    own = run.roles.get(first)
    named = [first] * ((own and own.nodes) or 1)
    if all(numbers.values()):
        numbers.setdefault(second, None)
    rest = count - len(named) - sum(number or 0 for number in numbers.values())
    for name, number in numbers.items():
        named += [name] * (rest if number is None else number)
    return tuple(named[:count])


def fix_size(run: R, count: int) -> R:
    """Return the run with this number of nodes, if it has a range of them."""
    if isinstance(run.nodes, NodeRange):
        return run.model_copy(update={"nodes": count})
    return run


def node_range(run: Run) -> tuple[int, int]:
    """Return the least and the largest number of nodes of the run; equal unless it is elastic."""
    if isinstance(run, Torchrun) and run.nnodes is not None:
        least, _, most = run.nnodes.partition("..")
        return int(least), int(most)
    if isinstance(run.nodes, NodeRange):
        return run.nodes.min, run.nodes.max
    return run.nodes, run.nodes


def hostfile(slots: Mapping[str, int]) -> str:
    """Return a line `IP slots=N` per node, for Open MPI, DeepSpeed and Horovod; only `IP` for 0.

    Dstack does the same, because `slots=0` makes mpirun fail (dstackai/dstack#3434, 2026-11-20).
    """
    return "".join(f"{ip} slots={count}\n" if count else f"{ip}\n" for ip, count in slots.items())


def hydra_hostfile(slots: Mapping[str, int]) -> str:
    """Return a line `IP:N` per node, for MPICH and Intel MPI; Open MPI rejects it.

    mpi-operator writes the same (pkg/controller/mpi_job_controller.go, 2026-07-02).
    """
    return "".join(f"{ip}:{count}\n" for ip, count in slots.items())


def host_list(slots: Mapping[str, int]) -> str:
    """Return `IP:N,IP:N`, for horovodrun's `-H` and for TI-ONE's lists of nodes."""
    return ",".join(f"{ip}:{count}" for ip, count in slots.items())
