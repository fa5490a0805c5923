"""The judgement: findings from facts by the rules. Nothing here does I/O."""

from collections.abc import Iterable

from config.errors import GpuctlError
from provision.health.facts import NodeFacts
from provision.health.model import SEVERITIES, AllFacts, Finding, Rule
from provision.health.rules import RULES

UNREACHABLE = "reachable"
"""The rule of a node that does not answer: it has no facts."""


def findings(fleet: AllFacts, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """Return what the rules find, by node in the fleet's order, the gravest first."""
    kept = tuple(rules)
    return tuple(
        finding
        for name, answer in fleet.answers.items()
        for finding in sorted(
            _of_node(name, answer, fleet, kept), key=lambda each: SEVERITIES.index(each.severity)
        )
    )


def _of_node(
    name: str, answer: NodeFacts | GpuctlError, fleet: AllFacts, rules: tuple[Rule, ...]
) -> list[Finding]:
    if isinstance(answer, GpuctlError):
        return [
            Finding(
                rule=UNREACHABLE,
                node=name,
                subject="answer by ssh",
                expected="facts",
                seen=answer.message,
                severity="reboot",
                remedy="`gpuctl status` shows whether the machine runs; if it does, reboot it,"
                " otherwise `gpuctl heal` makes it again",
                source="docs/look-up/health-rules.md",
            )
        ]
    return [
        Finding(
            rule=rule.id,
            node=name,
            subject=finding.subject,
            expected=finding.expected,
            seen=finding.seen,
            severity=finding.severity or rule.severity,
            remedy=finding.remedy or rule.remedy,
            source=rule.source,
        )
        for rule in rules
        for finding in rule.check(name, answer, fleet)
    ]


def offset(sent: float, received: float, facts: NodeFacts) -> float:
    """Return by how many seconds the node's clock is off at least: 0 if it may be right.

    The node read its clock after `sent` and, because its answer took `facts.took`, before
    `received - facts.took`.
    """
    if facts.clock is None:
        return 0.0
    least, most = facts.clock - max(sent, received - facts.took), facts.clock - sent
    return least if least > 0 else most if most < 0 else 0.0
