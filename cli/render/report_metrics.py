"""The section of a report about what a run used of its nodes."""

from collections.abc import Iterable

from cli.render.top import idle_text
from config.catalogue.instance_types import price_usd_h
from engine.analysis.charts import Spec, curve
from engine.analysis.metrics.usage import idle_cost
from engine.analysis.report import Report


def idle_lines(report: Report) -> list[str]:
    """Return which GPUs were idle while the run went on, and what they cost at list price."""
    setting = report.setting
    price = None if setting is None else price_usd_h(setting.instance_type)
    costs = [
        idle_cost(
            report.node(node.rank),
            [(gpu.gpu, gpu.idle_s) for gpu in node.gpus],
            len(node.gpus),
            price,
        )
        for node in report.used
    ]
    return [idle_text(cost) for cost in costs if cost is not None]


def curves(report: Report) -> Iterable[Spec]:
    """Return the charts of the run's course."""
    return (curve(metric) for metric in report.course.curves)
