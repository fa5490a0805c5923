"""What a mode plans from, and what it makes: a run on its nodes, and each node's part."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from config.cluster.cluster_file import Command
from config.models import Value
from config.run.run_file import Run, Torchrun
from engine.hostfile import host_list
from nodes.inventory import Node

R_co = TypeVar("R_co", bound=Run, covariant=True)


@dataclass(frozen=True)
class Variables:
    """A node's variables of the run file and of the network preset, the former laid over.

    `values` are plain, `secrets` map a variable to the name of the secret that it gets.
    """

    values: Mapping[str, str]
    secrets: Mapping[str, str]


@dataclass(frozen=True)
class Job(Generic[R_co]):
    """A run on its nodes; everything by rank: the first node is the head."""

    run: R_co
    run_id: str
    nodes: tuple[Node, ...]
    roles: tuple[str, ...]
    variables: tuple[Variables, ...]

    @property
    def head(self) -> str:
        """The head's address."""
        return self.nodes[0].private_ip

    def commands(self, rank: int) -> tuple[Command, ...]:
        """What the file says that this node runs: its role's commands, or the run's."""
        role = self.run.roles.get(self.roles[rank])
        if role is not None and role.commands is not None:
            return role.commands
        return getattr(self.run, "commands", None) or ()

    def processes(self, per_node: int | None) -> dict[str, int]:
        """Ranks by the node's address; by default one per GPU, one on a node without."""
        return {node.private_ip: per_node or node.slots for node in self.nodes}

    def gpus(self) -> dict[str, int]:
        """GPUs by the node's address."""
        return {node.private_ip: node.gpus for node in self.nodes}

    def alike(self) -> dict[str, str]:
        """The variables, but secrets, that have the same value on every node."""
        first, *others = (own.values for own in self.variables)
        return {
            name: value
            for name, value in first.items()
            if all(own.get(name) == value for own in others)
        }

    def ti_one(self, rank: int) -> dict[str, str]:
        """TI-ONE's names that say where the node is among the others."""
        return {
            "NODE_LIST": host_list(self.gpus()),
            "INDEX": str(rank),
            "GPU_NUM": str(sum(node.gpus for node in self.nodes)),
            "GPU_NUM_PER_NODE": str(self.nodes[rank].gpus),
        }

    def hidden(self, *own: str) -> tuple[str, ...]:
        """The head's variables that a launcher need not know, secrets first.

        Launchers that write their environment into the arguments of ssh are started without them;
        ranks get them from their node. Those stay by which programs and libraries are found, and
        those that begin with one of `own`: they are the launcher's.
        """
        head = self.variables[0]
        return (
            *head.secrets,
            *(n for n in head.values if n not in _FIND_PROGRAMS and not n.startswith(own)),
        )


_FIND_PROGRAMS = {"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "HOME"}


@dataclass(frozen=True)
class Part:
    """A node's part: its script, what its environment and files have beside every mode's.

    `files` are names in the run's folder and their text. `processes` is how many ranks a launcher
    has to start here, 0 where nothing counts them.
    """

    script: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    processes: int = 0


class ReadyPlan(Value):
    """When a node that others wait for is ready; neither port nor command: once it has started."""

    port: int | None
    command: str | None
    timeout_s: int


@dataclass(frozen=True)
class Launch:
    """What a mode makes of a job; `parts` by rank, `hostfile` the same on every node.

    `ready`, `startup_order`, `stop_criteria` and `dashboard` as in the plan.
    """

    parts: tuple[Part, ...]
    hostfile: str
    startup_order: Literal["any", "master-first", "workers-first"] = "any"
    stop_criteria: Literal["all-done", "master-done", "workers-done"] = "all-done"
    ready: ReadyPlan | None = None
    dashboard: str = ""


def led_by_head(parts: Iterable[Part], hostfile: str) -> Launch:
    """The head's launcher starts when the workers wait for it, and its end is the run's."""
    return Launch(
        parts=tuple(parts),
        hostfile=hostfile,
        startup_order="workers-first",
        stop_criteria="master-done",
    )


def roles_of(run: Run, count: int) -> tuple[str, ...]:
    """The role of each of `count` nodes: the first of the type's roles, then the file's order.

    A role without a number gets the nodes that no other claims; where all have one, these get the
    second of the type's roles.
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


def nodes_wanted(run: Run) -> tuple[int, int]:
    """From how many nodes to how many the run takes; the same number unless it is elastic."""
    if isinstance(run, Torchrun) and run.nnodes is not None:
        least, _, most = run.nnodes.partition("..")
        return int(least), int(most)
    return run.nodes, run.nodes
