"""The verdict on new nodes: which are fit for jobs, and what the others lack."""

from collections.abc import Mapping

from config.errors import BrokenNodes, NodeError
from config.progress import Progress, Reporter, State
from nodes.inventory import Inventory, Node
from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Expected, Finding
from provision.setup.node_health import findings_at_up


def broken(node: Node, error: NodeError) -> BrokenNodes:
    """Return the node's failure, with its cause: the message without the node's name."""
    if isinstance(error, BrokenNodes):
        return error
    cause = error.message.removeprefix(f"{node.name} ({node.private_ip})").lstrip(": ")
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
    return f"{node.name} ({node.private_ip}): {finding.text} ({finding.severity}: {finding.remedy})"
