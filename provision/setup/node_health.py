"""The health of a cluster: its file and type say what to expect, its nodes give the facts.

The verdict on new nodes says which are fit for jobs, and what the others lack.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.catalogue.instance_types import catalogue
from config.cluster.resolved import Resolved
from config.errors import BrokenNodes, NodeError
from config.progress import Progress, Reporter, State
from nodes.inventory import Inventory, Node
from provision.health.facts import NodeFacts
from provision.health.gather import gather
from provision.health.judge import findings
from provision.health.model import AllFacts, Expected, Finding
from provision.health.rules import DEEP_RULES, RULES
from provision.health.rules.system import IN_TIME
from provision.setup.reach import reach_every_node
from provision.setup.software.gpu_hardware import hardware
from provision.setup.software.script import DEBIAN
from provision.state.record import ClusterRecord, HostsRecord

if TYPE_CHECKING:
    from nodes.kept_connections import KeptConnections
    from nodes.ssh import Connections


_REACH_S = 15

_LINKS = {"A100": 12, "H100": 18, "H200": 18, "B200": 18, "B300": 18, "GB200": 18}
"""NVLinks of a GPU with NVSwitch: awslabs/awsome-distributed-ai @95b939cd,
1.architectures/efa-cheatsheet.md (2026-11-20); those of A100 (p4d), B300 and GB200 by analogy."""


def expectation(resolved: Resolved, inventory: Inventory) -> Expected:
    """Return what each node of the cluster must show; nothing of GPUs on an image without them."""
    addresses = {node.name: node.private_ip for node in inventory.nodes}
    kind = hardware(resolved.instance_type, resolved.interfaces)
    if resolved.cluster.image == DEBIAN or not kind.gpus:
        return Expected(addresses=addresses)
    entry = catalogue().get(kind.instance_type)
    model = entry.gpu.model if entry else ""
    return Expected(
        gpus=kind.gpus,
        model=model,
        nvlinks=_LINKS.get(model, 0) if kind.nvswitch else 0,
        efa=kind.efa,
        has_gpudirect=entry is not None and entry.rdma.gpudirect == "yes",
        addresses=addresses,
    )


def expectation_of(inventory: Inventory) -> Expected:
    """Return what machines that people have must show: what they had in common at `up`."""
    gpus, efa = {node.gpus for node in inventory.nodes}, {node.efa for node in inventory.nodes}
    return Expected(
        gpus=gpus.pop() if len(gpus) == 1 else 0,
        efa=efa.pop() if len(efa) == 1 else 0,
        # Without root the names are ssh's alone.
        addresses={node.name: node.private_ip for node in inventory.nodes if inventory.is_root},
        has_checks=False,
    )


@dataclass(frozen=True)
class Checklist:
    """What to check on a cluster's nodes, and the folders whose free space counts."""

    expected: Expected
    folders: tuple[str, ...] = ()


def checklist(record: ClusterRecord | HostsRecord, inventory: Inventory) -> Checklist:
    """Return what to check on the nodes of a cluster, rented or not."""
    if isinstance(record, HostsRecord):
        return Checklist(expectation_of(inventory))
    return Checklist(expectation(record.resolved, inventory), folders(record.resolved))


async def full_check(
    connections: "Connections | KeptConnections",
    inventory: Inventory,
    checks: Checklist,
    *,
    is_ready: bool = True,
) -> tuple[Finding, ...]:
    """Return what all rules find on all nodes, the head's way to the others included.

    Without `is_ready` the last `up` failed, and may not have given the nodes each other's names and
    keys: those rules are left out.
    """
    expected = checks.expected
    fleet = await gather(connections, inventory.nodes, expected, "full", checks.folders)
    if not is_ready:
        return findings_at_up(fleet)
    unreached = await _unreached(connections, inventory, fleet)
    return findings(AllFacts(expected, fleet.answers, fleet.offsets, unreached))


async def deep_check(
    connections: "Connections | KeptConnections",
    inventory: Inventory,
    checks: Checklist,
    slow: Mapping[str, str],
) -> tuple[Finding, ...]:
    """Return what the rules of `--deep` find; `slow` are nodes that a bisect named, with why."""
    seen = await gather(connections, inventory.nodes, checks.expected, "deep")
    fleet = AllFacts(checks.expected, seen.answers, slow=slow)
    return findings(fleet, (IN_TIME, *DEEP_RULES))


async def short_check(
    connections: "Connections | KeptConnections",
    nodes: Sequence[Node],
    checks: Checklist,
) -> tuple[Finding, ...]:
    """Return what the rules for the time before a run find on these nodes."""
    fleet = await gather(connections, nodes, checks.expected, "short", checks.folders)
    return findings(fleet, (rule for rule in RULES if rule.is_short))


def findings_at_up(fleet: AllFacts) -> tuple[Finding, ...]:
    """Return what the rules find before nodes know each other's names and keys, which `up` gives.

    That the head reaches all nodes is a step of `up`, and the names are written by it.
    """
    return findings(fleet, (rule for rule in RULES if rule.id not in ("names", "node-ssh")))


def folders(resolved: Resolved) -> tuple[str, ...]:
    """Return the folders of the cluster's disks: scratch and shared storage, where it has them."""
    storage = resolved.cluster.storage
    shared = (storage.shared.path,) if storage.shared else ()
    return (storage.scratch, *shared) if resolved.instance_type.local_disks else shared


async def _unreached(
    connections: "Connections | KeptConnections", inventory: Inventory, fleet: AllFacts
) -> dict[str, str]:
    """Return the head's complaints about nodes that answer this machine, by their names."""
    reached = tuple(node for node in inventory.nodes if node.name in fleet.facts)
    complaints: dict[str, str] = {}

    def see(progress: Progress) -> None:
        if progress.state == "failed":
            complaints[progress.subject] = progress.detail

    if reached and reached[0] == inventory.nodes[0]:
        some = inventory.model_copy(update={"nodes": reached})
        with suppress(NodeError):  # `see` has the complaints; a lost head does not answer either
            await reach_every_node(connections, some, see, _REACH_S)
    return complaints


def broken(node: Node, error: NodeError) -> BrokenNodes:
    """Return the node's failure, with its cause: the message without the node's name."""
    if isinstance(error, BrokenNodes):
        return error
    cause = error.message.removeprefix(node.label).lstrip(": ")
    return BrokenNodes(error.message, error.hint, {node.name: cause})


def judge(
    inventory: Inventory,
    expected: Expected,
    answers: Mapping[str, tuple[NodeFacts, float] | BrokenNodes],
    report: Reporter,
) -> None:
    """Report what the rules of health find; raise BrokenNodes if a node is not fit for jobs.

    Nodes that failed their set-up have an error instead of facts, and are in it too.
    """
    seen = {name: answer for name, answer in answers.items() if not isinstance(answer, BrokenNodes)}
    failed = {
        answer.message: answer for answer in answers.values() if isinstance(answer, BrokenNodes)
    }
    facts = {name: facts for name, (facts, _) in seen.items()}
    offsets = {name: off for name, (_, off) in seen.items()}
    findings = findings_at_up(AllFacts(expected, facts, offsets))
    lines, hints = list(failed), [error.hint for error in failed.values() if error.hint]
    causes = {name: why for failure in failed.values() for name, why in failure.causes.items()}
    for node in (node for node in inventory.nodes if node.name in seen):
        own = [finding for finding in findings if finding.node == node.name]
        grave = [deviation for deviation in own if deviation.is_grave]
        state: State = "failed" if grave else "done"
        report(Progress("verify", node.name, state, "; ".join(deviation.text for deviation in own)))
        lines += [_line(node, deviation) for deviation in grave]
        if grave:
            causes[node.name] = "; ".join(deviation.text for deviation in grave)
    if lines:
        hints += (
            ["docs/look-up/health-rules.md has every check"] if len(lines) > len(failed) else []
        )
        raise BrokenNodes("\n".join(lines), "\n".join(hints), causes)


def _line(node: Node, finding: Finding) -> str:
    return f"{node.label}: {finding.text} ({finding.severity}: {finding.remedy})"
