"""The page of a report: one HTML file with all that it needs in it, and nothing to fetch.

Whatever a job, a node or AWS named is escaped. The page's policy forbids every request, and every
script but the two that are in it.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cli.render.run import followed_lines
from cli.render.top import idle_text, known_columns, record_table
from config.catalogue.instance_types import price_usd_h
from config.quantities import counted, elapsed, money
from engine.analysis import charts
from engine.analysis.bisect.report import WORDS, Bisect, failure_lines, verdict_lines
from engine.analysis.bisect.verdict import node_speeds
from engine.analysis.charts import Spec, curve
from engine.analysis.comparison import HALVES
from engine.analysis.metrics.usage import idle_cost
from engine.analysis.report import Report, bisects_in, reference_gbs
from engine.contract.table import Timing
from operations.results import Table


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


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
)  # fmt: skip
_TEMPLATES.policies["json.dumps_kwargs"] = {}  # by default Jinja sorts the charts' keys
_DRAW = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const drawn = Object.entries(charts).map(([id, chart]) =>
  vegaEmbed("#" + id, chart, {actions: false, renderer: "svg"}));
Promise.all(drawn).then(() => { document.body.dataset.charts = drawn.length; });
"""


def page(reports: Sequence[Report], library: str, version: str) -> str:
    """Return the HTML page about the runs; `library` is the script that has `vegaEmbed`."""
    specs: dict[str, charts.Spec] = {}

    def add_chart(spec: charts.Spec) -> str:
        name = f"chart{len(specs)}"
        specs[name] = spec
        return name

    # The scripts run as they are: `</script>` would end them early, also within a string.
    scripts = [text.replace("</script", "<\\/script") for text in (library, _DRAW)]
    facts = [_facts(report) for report in reports]
    is_one_of_many = len(reports) > 1
    return _TEMPLATES.get_template("report.html.j2").render(
        reports=reports,
        ids=[report.run.run_id for report in reports],
        names=dict.fromkeys(report.run.name for report in reports),
        facts=[
            (name, *(fact.get(name, "") for fact in facts))
            for name in dict.fromkeys(name for fact in facts for name in fact)
        ],
        bisects=[_bisect(bisect) for bisect in bisects_in(reports)],
        lines=[
            spec
            for title, lines in charts.lines_by_collective(reports).items()
            for spec in (
                charts.bandwidth(title, lines, reference_gbs(title, reports)),
                charts.latency(title, lines),
            )
        ],
        tables=[
            _figures(report, table, is_one_of_many) for report in reports for table in report.tables
        ],
        halves=HALVES,
        details_of=_details,
        add_chart=add_chart,
        specs=specs,
        scripts={_digest(script): script for script in scripts},
        version=version,
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _facts(report: Report) -> dict[str, str]:
    """Return what the page says after a run's verdict, by name; what is unknown is missing."""
    run, setting, tables = report.run, report.setting, report.tables
    facts = {
        "Reason": run.reason,
        "Started": f"{run.started:%Y-%m-%d %H:%M:%S} UTC",
        "Duration": elapsed((run.ended - run.started).total_seconds()) if run.ended else "",
        "Cluster": f"{run.cluster}, {counted(run.nodes, 'node')}",
        "Cost": _cost(report),
        "Lease": f"the cluster ends by itself at {report.lease_end:%Y-%m-%d %H:%M} UTC"
        if report.lease_end else "",
    }  # fmt: skip
    if setting is not None:
        spot = ", spot" if setting.is_spot else ""
        facts["Instances"] = f"{setting.instance_type}, {setting.zone}{spot}"
        facts["Image"] = setting.image
        facts["Type of run"] = setting.type
    for name, field in (
        ("nccl-tests", "nccl_tests"),
        ("NCCL", "nccl"),
        ("Network plugin", "plugin"),
        ("CUDA driver", "driver"),
    ):
        facts[name] = _each(str(getattr(table.facts, field)) for table in tables)
    facts["Ranks"] = _each(str(len(table.facts.ranks) or "") for table in tables)
    facts["GPU"] = _each(rank.name for table in tables for rank in table.facts.ranks)
    return {name: value for name, value in facts.items() if value}


def _cost(report: Report) -> str:
    if report.run.cost_usd is not None:
        usd = money(report.run.cost_usd)
        return f"about {usd} at list price, from launch to end of the cluster"
    if report.nodes_usd is not None:
        return f"about {money(report.nodes_usd)} at list price, for the run's nodes"
    return "not known: the cluster was kept"


def _each(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, values)))


def _bisect(bisect: Bisect) -> dict[str, Any]:
    """Return the verdict of a bisect, its pairs, and a table of each node's best speeds."""
    speeds = {how: of for how, of in node_speeds(bisect.measured).items() if of}
    return {
        "value": bisect,
        "verdict": verdict_lines(bisect),
        "chart": charts.pairs_of_bisect(bisect),
        "heads": ["node", *(f"best {WORDS[how]}, GB/s" for how in speeds)] if speeds else [],
        "rows": [
            (name, *(f"{of.get(node, 0.0):.4g}" for of in speeds.values()))
            for node, name in enumerate(bisect.nodes)
        ],
        "failed": failure_lines(bisect.nodes, bisect.measured),
    }


def _figures(report: Report, table: Table, is_one_of_many: bool) -> dict[str, Any]:
    """Return a table of nccl-tests with the figures as the history has them."""
    facts = table.facts
    rows = [
        (
            str(row.size),
            row.dtype,
            row.redop or "",
            *_half(row.out_of_place, facts.is_checked),
            *_half(row.in_place, facts.is_checked),
        )
        for row in table.rows
    ]
    run = f"{report.run.run_id}: " if is_one_of_many else ""
    notes = [f"{run}{facts.collective} on {report.node(facts.rank)}"]
    if facts.ranks:
        hosts = ", ".join(dict.fromkeys(rank.host for rank in facts.ranks))
        notes.append(f"{len(facts.ranks)} ranks on {hosts}")
    if facts.average_busbw is not None:
        notes.append(f"average bus bandwidth {facts.average_busbw:g} GB/s")
    if facts.out_of_bounds:
        notes.append(f"{facts.out_of_bounds} values out of bounds")
    if facts.ended_at is not None:
        notes.append(f"incomplete: it ended at {facts.ended_at} bytes")
    return {"notes": notes, "rows": rows}


def _half(half: Timing | None, is_checked: bool) -> tuple[str, ...]:
    if half is None:
        return ("-",) * 4
    wrong = "unchecked" if half.wrong is None or not is_checked else str(half.wrong)
    if half.error is not None and is_checked:
        wrong = f"error {half.error:g}"
    return (*map(number, (half.time_us, half.algbw, half.busbw)), wrong)


def number(value: float) -> str:
    """Return the figure with all its digits, as it is in the history."""
    return repr(value).removesuffix(".0")


def _details(report: Report) -> dict[str, Any]:
    """Return the charts, tables and lists about one run alone."""
    return {
        "pairs": charts.heat_map(report.pairs),
        "idle": idle_lines(report),
        "used": known_columns(*record_table(report.used, report.names)),
        "curves": curves(report),
        "transport": [(name, _transport(report, rank)) for rank, name in enumerate(report.names)],
        "failures": _failures(report),
        "files": [(str(path), path.absolute().as_uri()) for path in report.files],
        "timeline": charts.gantt(report.timeline),
        "events": [
            (f"{moment.at:.1f} s", moment.node or "run", moment.text)
            for moment in report.timeline.moments
        ],
    }


def _transport(report: Report, rank: int) -> str:
    """Return what NCCL's lines show about a node's network."""
    words = [
        finding.text.removeprefix(f"{report.names[rank]} ")
        + ("" if finding.level == "proof" else f" ({finding.level})")
        for finding in report.findings
        if finding.kind == "network_seen" and finding.rank == rank
    ]
    return "; ".join(words) or "NCCL printed nothing that shows it"


def _failures(report: Report) -> list[str]:
    run = report.run
    lines = [f"Run {run.status}: {run.reason}"] if run.status in ("failed", "stopped") else []
    if run.first_failed_rank is not None:
        lines.append(f"First to fail: {report.node(run.first_failed_rank)}")
    lines += followed_lines(run.followed)
    lines += [
        f"{finding.level}: {finding.text}"
        for finding in report.findings
        if finding.level != "proof"
    ]
    return lines
