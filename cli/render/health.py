"""The health of a cluster's nodes as text."""

from typing import TYPE_CHECKING

from config.folded_names import fold
from config.quantities import counted
from operations import health as operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.health import Health

DROP = ("SEVERITY",)
"""The columns that a narrow terminal lacks; the findings are wrapped before."""


def health_lines(health: "Health", out: "Output") -> "Iterator[str]":
    """Yield the findings as a table, equal ones of several nodes in one row, and the verdict."""
    of_nodes: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in health.findings:
        key = (finding.severity, finding.text, finding.remedy, finding.source)
        of_nodes.setdefault(key, []).append(finding.node)
    rows = []
    order = sorted(of_nodes, key=lambda key: operation.SEVERITIES.index(key[0]))
    for severity, text, remedy, source in order:
        rows.append((severity, fold(of_nodes[severity, text, remedy, source]), text))
        rows.append(("", "", remedy))
        rows.append(("", "", f"source: {source}"))
    if rows:
        head = ("SEVERITY", "NODE", "FOUND, REMEDY, SOURCE")
        yield from out.table(head, rows, drop=DROP, sentences=head[-1])
    verdict = f"not fit for jobs: {fold(health.unfit)}" if health.unfit else "all fit for jobs"
    yield f"{health.cluster}: {counted(len(health.nodes), 'node')}, {verdict}"
