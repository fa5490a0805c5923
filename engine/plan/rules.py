"""Rules about a run and its nodes, each with its reason and its remedy.

gpuctl checks them before anything runs, so that nobody pays for a run that cannot work. Rules about
the run file alone are in config/run/run_rules.py; docs/look-up/modes.md lists both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from config.command_text import command_text
from config.errors import InputError
from config.folded_names import fold
from config.run.elastic import NodeRange
from config.run.run_file import Mpirun, NcclTests, Run
from engine.plan.modes.job import Variables, node_range
from engine.plan.network.presets import (
    BY_HARDWARE,
    PRESETS,
    Preset,
    has_rdma,
    is_examined,
    misfit_reason,
    unprovable_reason,
)
from engine.plan.requirement_check import misfits
from nodes.inventory import Inventory, Node

LONGEST = 131_071
"""Bytes of `NAME=value` that Linux passes to a program: MAX_ARG_STRLEN less the final NUL
(execve(2), 2026-11-20)."""


@dataclass(frozen=True)
class Situation:
    """A run and the nodes that it would get. `variables` are in rank order, as in a Job."""

    run: Run
    inventory: Inventory
    nodes: tuple[Node, ...]
    preset: Preset
    variables: tuple[Variables, ...]


@dataclass(frozen=True)
class Violation:
    """A violation of a rule by this run, and its remedy."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    """A rule. `requirement`, `reason` and `remedy` are for the documentation."""

    requirement: str
    reason: str
    remedy: str
    violations: Callable[[Situation], Iterator[Violation]]


def check(situation: Situation) -> None:
    """Raise InputError with every rule that the run violates, one per line."""
    violations = [violation for rule in RULES for violation in rule.violations(situation)]
    if len(violations) == 1:
        raise InputError(violations[0].message, violations[0].remedy)
    if violations:
        raise InputError(
            "\n".join(f"{violation.message}; {violation.remedy}" for violation in violations), ""
        )


def _enough_nodes(situation: Situation) -> Iterator[Violation]:
    run, inventory = situation.run, situation.inventory
    least, most = node_range(run)
    available = len(inventory.nodes)
    if least > available:
        needed = f"{least}"
        remedy = f"use {command_text('--nodes {}', available)}"  # for a manifest too
        if least != most:
            needed, remedy = f"{least} to {most}", f"set `nnodes: 1..{available}`"
        if isinstance(run.nodes, NodeRange):
            remedy = f"set the `min` of `nodes` to {available}"
        yield Violation(
            f"run {run.name} wants {needed} nodes, cluster {inventory.cluster} has {available}",
            f"{remedy}, or bring up a larger cluster",
        )


def _elastic_nodes_alike(situation: Situation) -> Iterator[Violation]:
    first, *others = situation.nodes
    other = next(
        (node for node in others if (node.gpus, node.slots) != (first.gpus, first.slots)), None
    )
    if isinstance(situation.run.nodes, NodeRange) and other is not None:
        yield Violation(
            f"`nodes` of run {situation.run.name} is a range, and its nodes are not alike:"
            f" {first.name} has {first.gpus} GPUs, {other.name} has {other.gpus}",
            "write one number of nodes, or replace the node that differs",
        )


def _ranks_have_gpus(situation: Situation) -> Iterator[Violation]:
    key, needed = wanted_gpus(situation.run)
    few = [node for node in situation.nodes if needed and 0 < node.gpus < needed]
    if few:
        gpus = min(node.gpus for node in few)
        yield Violation(
            f"{key} is {needed}, {fold(node.name for node in few)}"
            f" ({situation.inventory.instance_type}) {_has(few)} {gpus} GPUs",
            f"set it to {gpus} or less, or leave it out for one rank per GPU",
        )


def wanted_gpus(run: Run) -> tuple[str, int]:
    """Return the GPUs that a node with GPUs must have at least, 0 for any, and the field's name."""
    if isinstance(run, NcclTests) and run.gpus_per_node:
        return "gpus_per_node", max(run.gpus_per_node)
    return "procs_per_node", getattr(run, "procs_per_node", None) or 0


def _preset_fits(situation: Situation) -> Iterator[Violation]:
    network = situation.run.network
    if network in BY_HARDWARE:
        yield from _rdma_is_there(situation)
        return
    reason = misfit_reason(PRESETS[network], situation.nodes)
    if reason:
        yield Violation(
            f"network {network} does not fit: {reason}",
            "remove `network`: gpuctl then chooses the preset for the nodes' hardware",
        )


def _rdma_is_there(situation: Situation) -> Iterator[Violation]:
    if situation.run.network != "rdma" or situation.preset.promises:
        return
    lacking = [node for node in situation.nodes if is_examined(node) and not has_rdma(node)]
    if lacking:
        yield Violation(
            f"network is rdma, {fold(node.name for node in lacking)} {_has(lacking)} no RDMA"
            " device",
            "see its driver (`ls /sys/class/infiniband`) and repeat `gpuctl up`, or remove"
            " `network`",
        )
    elif all(is_examined(node) for node in situation.nodes):
        yield Violation(
            "network is rdma, and the nodes have RDMA devices of different kinds",
            "run on nodes of one kind, or remove `network`",
        )


def _proof_is_possible(situation: Situation) -> Iterator[Violation]:
    reason = unprovable_reason(situation.run, situation.preset, situation.nodes)
    if reason:
        yield Violation(
            f"verify is require, but nothing of run {situation.run.name} can be proven: {reason}",
            "remove `verify`, or use nodes with RDMA",
        )


_MPI = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}


def _implementation_installed(situation: Situation) -> Iterator[Violation]:
    """Check only nodes that bootstrap has examined, in runs without an image and an own PATH."""
    run = situation.run
    if not isinstance(run, Mpirun) or run.image is not None:
        return
    lacking = [
        node
        for node, own in zip(situation.nodes, situation.variables, strict=True)
        if node.software and run.implementation not in node.software and "PATH" not in own.values
    ]
    if lacking:
        installed = sorted(set(lacking[0].software) & set(_MPI))
        versions = ", ".join(f"{name} {lacking[0].software[name]}" for name in installed)
        yield Violation(
            f"implementation is {run.implementation}, {fold(node.name for node in lacking)}"
            f" {_has(lacking)} no {_MPI[run.implementation]} (found: {versions or 'none'})",
            "choose an installed one, set PATH in `env` to the folder of yours, or use an `image`",
        )


def _nodes_may_end(situation: Situation) -> Iterator[Violation]:
    if situation.run.on_stop == "destroy" and not situation.inventory.is_rented:
        yield Violation(
            f"on_stop is destroy, and cluster {situation.inventory.cluster} is of machines that"
            " gpuctl does not rent: it does not end them",
            "set `on_stop: keep`",
        )


def _values_fit(situation: Situation) -> Iterator[Violation]:
    merged = {name: text for own in situation.variables for name, text in own.values.items()}
    for name, value in merged.items():
        size = len(f"{name}={value}".encode())
        if size > LONGEST:
            yield Violation(
                f"env {name} is {size} bytes long, Linux accepts {LONGEST}",
                "put the value into a file on the nodes",
            )


def _requirements_fulfilled(situation: Situation) -> Iterator[Violation]:
    run, inventory = situation.run, situation.inventory
    for misfit in misfits(run, inventory, situation.nodes):
        cluster = f"cluster {inventory.cluster} ({inventory.instance_type})"
        yield Violation(
            f"run {run.name} asks for {misfit.required}, {cluster} has {misfit.actual}",
            misfit.remedy,
        )


def _has(nodes: list[Node]) -> str:
    return "has" if len(nodes) == 1 else "have"


RULES = (
    Rule(
        "The cluster has as many nodes as the run wants.",
        "A launcher with fewer hosts than planned hangs, or runs a smaller job than requested.",
        "Lower `nodes` (or the least of its range or of `nnodes`), or bring up a larger cluster.",
        _enough_nodes,
    ),
    Rule(
        "The nodes of a run whose `nodes` is a range have the same number of GPUs.",
        "gpuctl plans every size of the run before it starts, and any node may be lost.",
        "Write one number of nodes, or replace the node that differs.",
        _elastic_nodes_alike,
    ),
    Rule(
        "The cluster is what `requires` (in dstack's files `resources` and others) asks for.",
        "A job for other GPUs, or for more memory, fails after minutes that are paid for.",
        "Run it on a cluster that has it, or change what it asks for.",
        _requirements_fulfilled,
    ),
    Rule(
        "`procs_per_node` and `gpus_per_node` are at most the number of GPUs of each node that has"
        " GPUs.",
        "With two ranks on one GPU, NCCL fails (`Duplicate GPU detected`); without NCCL they share"
        " its memory.",
        "Lower it, or remove it to get one rank per GPU.",
        _ranks_have_gpus,
    ),
    Rule(
        "The `network` preset of the run file fits the nodes' hardware.",
        "A preset for missing hardware makes NCCL fail, or fall back to sockets; `hcc` is TI-ONE's"
        " preset for 2 nodes or more with 8 whole GPUs each.",
        "Remove `network`: `auto` chooses the preset for the hardware that bootstrap found. `rdma`"
        " needs EFA, InfiniBand or RoCE on every node.",
        _preset_fits,
    ),
    Rule(
        "`verify: require` needs a network preset with RDMA and 2 nodes or more.",
        "Without RDMA, or on one node, no line of NCCL can prove RDMA: every such run would fail.",
        "Remove `verify`, or use nodes with RDMA.",
        _proof_is_possible,
    ),
    Rule(
        "The nodes have the run's `implementation` of MPI.",
        "Each mpirun has its own hostfile format and options; another one ignores or rejects them."
        " gpuctl does not check runs with an `image` or their own PATH.",
        "Choose an installed one, set PATH in `env`, or use an `image`.",
        _implementation_installed,
    ),
    Rule(
        "`on_stop: destroy` needs a cluster that gpuctl rents.",
        "Its nodes power off at the run's end; machines that people have (`hosts`) must not.",
        "Set `on_stop: keep`.",
        _nodes_may_end,
    ),
    Rule(
        f"No variable is longer than {LONGEST} bytes, including its name.",
        "Linux does not start a program with a longer one (MAX_ARG_STRLEN, execve(2)).",
        "Put the value into a file on the nodes.",
        _values_fit,
    ),
)
"""The rules in the order in which violations are reported."""
