"""The section of a report about what a run used of its nodes."""

from collections.abc import Iterable
from html import escape

from cli.render.top import idle_text, known_columns, record_table
from config.catalogue.instance_types import price_usd_h
from engine.analysis.charts import Spec, curve
from engine.analysis.metrics.idle import idle_cost
from engine.analysis.report import Report

NOTE = (
    "Each node sent a sample every 5 seconds at first, of which the record of a long run has one a"
    " minute. Disk and network are read plus written, and received plus sent."
)
NONE_KEPT = "No client of this machine has fetched metrics of this run."


def idle_lines(report: Report) -> list[str]:
    """Return which GPUs were idle while the run went on, and what they cost at list price."""
    setting = report.setting
    price = None if setting is None else price_usd_h(setting.instance_type)
    found = [
        idle_cost(
            report.node(node.rank),
            [(gpu.gpu, gpu.idle_s) for gpu in node.gpus],
            len(node.gpus),
            price,
        )
        for node in report.used
    ]
    return [idle_text(cost) for cost in found if cost is not None]


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the nodes' means and peaks, as HTML."""
    head, rows = known_columns(*record_table(report.used, report.names))
    return head, [[escape(cell) for cell in row] for row in rows]


def curves(report: Report) -> Iterable[Spec]:
    """Return the charts of the run's course."""
    return (curve(metric) for metric in report.course.curves)
