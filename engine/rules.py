"""What a run must be on the nodes that are there: every rule, with its reason and its remedy.

They run before anything else does, so that nothing is paid for that cannot work. What the run file
alone can tell is checked where it is read (config/run/run_rules.py); docs/modes.md lists both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from config.errors import InputError
from config.run.run_file import Mpirun, Run
from engine.modes.job import Variables, nodes_wanted
from engine.network.presets import Preset, fits, unprovable
from nodes.inventory import Inventory, Node
from nodes.names import fold

LONGEST = 131_071
"""Bytes of `NAME=value` that Linux passes to a program: MAX_ARG_STRLEN less the final NUL
(execve(2), 2026-11-20)."""

LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "mpi": ("mpirun", "mpiexec", "mpiexec.hydra", "prterun"),
    "torchrun": ("torchrun", "python -m torch.distributed.run", "python3 -m torch.distributed.run"),
    "horovod": ("horovodrun",),
    "deepspeed": ("deepspeed",),
    "ray": ("ray start",),
}
"""What `commands` of a type must not call: gpuctl does."""


@dataclass(frozen=True)
class Situation:
    """A run, and the nodes that it would have; `variables` by rank, as in a Job."""

    run: Run
    inventory: Inventory
    nodes: tuple[Node, ...]
    preset: Preset
    variables: tuple[Variables, ...]


@dataclass(frozen=True)
class Complaint:
    """What is wrong with this run, and what to do."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    """What holds (`says`) and why, for the documentation; `complaints` are of where it does not."""

    says: str
    reason: str
    remedy: str
    complaints: Callable[[Situation], Iterator[Complaint]]


def check(situation: Situation) -> None:
    """The run can be launched. Raises InputError with every rule that it breaks, a line each."""
    found = [complaint for rule in RULES for complaint in rule.complaints(situation)]
    if len(found) == 1:
        raise InputError(found[0].message, found[0].remedy)
    if found:
        raise InputError("\n".join(f"{one.message}; {one.remedy}" for one in found), "")


def _nodes_there(situation: Situation) -> Iterator[Complaint]:
    run, inventory = situation.run, situation.inventory
    least, most = nodes_wanted(run)
    there = len(inventory.nodes)
    if least > there:
        wanted, key = (f"{least}", "nodes") if least == most else (f"{least} to {most}", "nnodes")
        less = there if least == most else f"1..{there}"
        yield Complaint(
            f"run {run.name} wants {wanted} nodes, cluster {inventory.cluster} has {there}",
            f"set `{key}: {less}`, or bring up a larger cluster",
        )


def _ranks_have_gpus(situation: Situation) -> Iterator[Complaint]:
    wanted = getattr(situation.run, "procs_per_node", None)
    few = [node for node in situation.nodes if wanted and 0 < node.gpus < wanted]
    if few:
        gpus = min(node.gpus for node in few)
        yield Complaint(
            f"procs_per_node is {wanted}, {fold(node.name for node in few)}"
            f" ({situation.inventory.instance_type}) {_has(few)} {gpus} GPUs",
            f"set it to {gpus} or less, or leave it out for one rank per GPU",
        )


def _preset_fits(situation: Situation) -> Iterator[Complaint]:
    network = situation.run.network
    reason = None if network == "auto" else fits(network, situation.nodes)
    if reason:
        yield Complaint(
            f"network {network} does not fit: {reason}",
            "leave `network` out: the preset then goes by the nodes' hardware",
        )


def _proof_is_possible(situation: Situation) -> Iterator[Complaint]:
    reason = unprovable(situation.run, situation.preset, situation.nodes)
    if reason:
        yield Complaint(
            f"verify is require, but nothing of run {situation.run.name} can be proven: {reason}",
            "leave `verify` out, or take nodes with RDMA",
        )


_MPI = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}


def _implementation_is_there(situation: Situation) -> Iterator[Complaint]:
    """Where bootstrap has looked, and the run brings none of its own by image or PATH."""
    run = situation.run
    if not isinstance(run, Mpirun) or run.image is not None:
        return
    lacking = [
        node
        for node, own in zip(situation.nodes, situation.variables, strict=True)
        if node.software and run.implementation not in node.software and "PATH" not in own.values
    ]
    if lacking:
        there = sorted(set(lacking[0].software) & set(_MPI))
        found = ", ".join(f"{name} {lacking[0].software[name]}" for name in there)
        yield Complaint(
            f"implementation is {run.implementation}, {fold(node.name for node in lacking)}"
            f" {_has(lacking)} no {_MPI[run.implementation]} (found: {found or 'none'})",
            "choose one that is there, set PATH in `env` to where yours is, or use an `image`",
        )


_BEGINS = r"(?:^|[;&|]|\b(?:then|do|else)\s)\s*(?:exec\s+|\w+=\S*\s+)*"
"""Where a shell's command begins, as far as one can tell without being a shell."""


def _no_launcher_in_commands(situation: Situation) -> Iterator[Complaint]:
    run = situation.run
    entries = [*(getattr(run, "commands", None) or ())]
    entries += [entry for role in run.roles.values() for entry in role.commands or ()]
    for launcher in LAUNCHERS.get(run.type, ()):
        words = r"\s+".join(re.escape(word) for word in launcher.split())
        call = re.compile(rf"{_BEGINS}(?:\S*/)?{words}(?:\s|$)", re.MULTILINE)
        if any(call.search(entry) for entry in entries):
            yield Complaint(
                f"commands call {launcher}, which type {run.type} does itself",
                "write what it is to start alone, or use `type: task`",
            )


def _values_fit(situation: Situation) -> Iterator[Complaint]:
    merged = {name: text for own in situation.variables for name, text in own.values.items()}
    for name, value in merged.items():
        size = len(f"{name}={value}".encode())
        if size > LONGEST:
            yield Complaint(
                f"env {name} is {size} bytes long, Linux passes {LONGEST}",
                "put it into a file on the nodes",
            )


def _has(nodes: list[Node]) -> str:
    return "has" if len(nodes) == 1 else "have"


RULES = (
    Rule(
        "The cluster has as many nodes as the run wants.",
        "A launcher that gets fewer hosts than ranks were reckoned with hangs, or runs a smaller"
        " job than was asked for.",
        "Lower `nodes` (or the least of `nnodes`), or bring up a larger cluster.",
        _nodes_there,
    ),
    Rule(
        "`procs_per_node` is not above the GPUs of a node that has any.",
        "Two ranks on one GPU: NCCL refuses it (`Duplicate GPU detected`), and without NCCL they"
        " share its memory.",
        "Lower it, or leave it out: one rank per GPU.",
        _ranks_have_gpus,
    ),
    Rule(
        "A `network` preset that is named fits the nodes' hardware.",
        "A preset for hardware that is not there makes NCCL fail, or fall back to sockets; `hcc` is"
        " TI-ONE's for 2 nodes or more with 8 whole GPUs each.",
        "Leave `network` out: `auto` goes by the hardware that bootstrap found.",
        _preset_fits,
    ),
    Rule(
        "`verify: require` only where something can be proven.",
        "Without RDMA, or on one node, no line of NCCL's can show RDMA: the run could only fail.",
        "Leave `verify` out, or take nodes with RDMA.",
        _proof_is_possible,
    ),
    Rule(
        "The nodes have the `implementation` of MPI that is asked for.",
        "Each mpirun has a hostfile dialect and options of its own; another one ignores or refuses"
        " them. Not asked where the run has an `image` or its own PATH.",
        "Choose one that is there, set PATH in `env`, or use an `image`.",
        _implementation_is_there,
    ),
    Rule(
        "`commands` do not call the launcher of their `type`.",
        "Every rank would start a whole job of its own, each as large as the run.",
        "Write what the launcher is to start, or use `type: task`, which starts nothing by itself.",
        _no_launcher_in_commands,
    ),
    Rule(
        f"No variable is longer than {LONGEST} bytes, its name included.",
        "Linux starts no program with a longer one (MAX_ARG_STRLEN, execve(2)).",
        "Put it into a file on the nodes.",
        _values_fit,
    ),
)
"""In the order in which they are told."""
