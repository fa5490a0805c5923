"""The page of a report: one HTML file with all that it needs in it, and nothing to fetch.

Whatever a job, a node or AWS named is escaped. The page's policy forbids every request, and every
script but the two that are in it.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cli.render import report_metrics
from cli.render.run import followed_lines
from config.quantities import elapsed, money
from engine.analysis import charts
from engine.analysis.bisect.report import WORDS, Bisect, failure_lines, verdict_lines
from engine.analysis.bisect.verdict import node_speeds
from engine.analysis.measurements import HALVES
from engine.analysis.report import Report, bisects_in, reference_gbs
from engine.contract.table import Timing
from operations.results import Table

_CSS = Path(__file__).with_name("report.css")
_DRAW = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const drawn = Object.entries(charts).map(([id, chart]) =>
  vegaEmbed("#" + id, chart, {actions: false, renderer: "svg"}));
Promise.all(drawn).then(() => { document.body.dataset.charts = drawn.length; });
"""
_MOST_OPEN = 4  # a report with more tables begins with all of them folded
_HALF = ("time us", "algbw GB/s", "busbw GB/s", "wrong")


def page(reports: Sequence[Report], library: str, version: str) -> str:
    """Return the HTML page about the runs; `library` is the script that has `vegaEmbed`."""
    specs: dict[str, charts.Spec] = {}
    body = [
        _head(reports),
        *(part for bisect in bisects_in(reports) for part in _bisect(bisect, specs)),
        *_collectives(reports, specs),
        *(part for report in reports for part in _details(report, specs, len(reports) > 1)),
    ]
    # The scripts run as they are: `</script>` would end them early, also within a string.
    scripts = [text.replace("</script", "<\\/script") for text in (library, _DRAW)]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src 'unsafe-eval' {hashes}; style-src 'unsafe-inline'"
    title = escape("Report of " + ", ".join(report.run.run_id for report in reports))
    text = json.dumps(specs, ensure_ascii=True).replace("<", "\\u003c")
    return "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>\n{_CSS.read_text()}</style>\n</head>\n<body>",
            *body,
            f"<footer>Written by gpuctl {escape(version)}. Charts: Vega-Lite.</footer>",
            f'<script type="application/json" id="charts">{text}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body>\n</html>\n",
        )
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _head(reports: Sequence[Report]) -> str:
    """Return the title and the table of facts with a column for each run."""
    runs = [report.run for report in reports]
    names = ", ".join(dict.fromkeys(run.name for run in runs))
    title = runs[0].run_id if len(runs) == 1 else f"{len(runs)} runs of {names}"
    facts = [_facts(report) for report in reports]
    known = dict.fromkeys(name for fact in facts for name in fact)
    rows = [(name, *(fact.get(name, "") for fact in facts)) for name in known]
    heads = ["", *(escape(run.run_id) for run in runs)] if len(runs) > 1 else []
    return f"<h1>{escape(title)}</h1>\n" + _table(rows, heads)


def _facts(report: Report) -> dict[str, str]:
    """Return what the page says first about a run, as HTML by name; what is unknown is missing."""
    run, setting, tables = report.run, report.setting, report.tables
    mark = {"done": "✓ ", "failed": "✗ "}.get(run.status, "")
    code = "" if run.exit_code is None else f" exit code {run.exit_code}"
    facts = {
        "Verdict": f'<span class="verdict {run.status}">{mark}{run.status}</span>{code}',
        "Reason": escape(run.reason),
        "Started": f"{run.started:%Y-%m-%d %H:%M:%S} UTC",
        "Duration": elapsed((run.ended - run.started).total_seconds()) if run.ended else "",
        "Cluster": escape(f"{run.cluster}, {run.nodes} {'node' if run.nodes == 1 else 'nodes'}"),
        "Cost": "not known: the cluster was kept" if run.cost_usd is None
        else f"about {money(run.cost_usd)} at list price, from launch to end of the cluster",
    }  # fmt: skip
    if setting is not None:
        spot = ", spot" if setting.is_spot else ""
        facts["Instances"] = escape(f"{setting.instance_type}, {setting.zone}{spot}")
        facts["Image"] = escape(setting.image)
        facts["Type of run"] = escape(setting.type)
    for name, field in (
        ("nccl-tests", "nccl_tests"),
        ("NCCL", "nccl"),
        ("Network plugin", "plugin"),
        ("CUDA driver", "driver"),
    ):
        facts[name] = escape(_each(str(getattr(table.facts, field)) for table in tables))
    facts["Ranks"] = _each(str(len(table.facts.ranks) or "") for table in tables)
    facts["GPU"] = escape(_each(rank.name for table in tables for rank in table.facts.ranks))
    return {name: value for name, value in facts.items() if value}


def _each(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, values)))


def _bisect(bisect: Bisect, specs: dict[str, charts.Spec]) -> Iterable[str]:
    """Yield the verdict of a bisect, its pairs, and each node's best speeds."""
    yield f"<h2>Bisect of {escape(bisect.cluster)}</h2>"
    first, *others = map(escape, verdict_lines(bisect))
    yield f"<p><strong>{first}</strong></p>"
    yield _list(others)
    yield '<div class="scroll">' + _chart(charts.pairs_of_bisect(bisect), specs) + "</div>"
    speeds = {how: of for how, of in node_speeds(bisect.measured).items() if of}
    rows = [
        (escape(name), *(f"{of.get(node, 0.0):.4g}" for of in speeds.values()))
        for node, name in enumerate(bisect.nodes)
    ]
    if speeds:
        yield _table(rows, ("node", *(f"best {WORDS[how]}, GB/s" for how in speeds)))
    if failed := failure_lines(bisect.nodes, bisect.measured):
        yield _list(map(escape, failed))
    runs = escape(", ".join(bisect.runs))
    yield (
        f'<p class="sub">Begun {bisect.began:%Y-%m-%d %H:%M:%S} UTC. {len(bisect.measured)}'
        f" measurements in {len(bisect.runs)} of {bisect.planned_runs} planned runs: {runs}</p>"
    )


def _collectives(reports: Sequence[Report], specs: dict[str, charts.Spec]) -> Iterable[str]:
    """Yield the charts of every collective, then the tables; put the charts into `specs`."""
    tables = [(report, table) for report in reports for table in report.tables]
    if not tables:
        yield "<p>No nccl-tests table was printed.</p>"
        return
    if found := charts.lines_by_collective(reports):
        yield from _lines(found, reports, specs)
    yield "<h2>Tables</h2>"
    for report, table in tables:
        fold = "" if len(tables) > _MOST_OPEN else " open"
        yield f"<details{fold}>{_figures(report, table, len(reports) > 1)}</details>"


def _lines(
    found: Mapping[str, charts.Lines], reports: Sequence[Report], specs: dict[str, charts.Spec]
) -> Iterable[str]:
    yield "<h2>Bandwidth and time</h2>"
    yield (
        '<p class="sub">Solid lines are out-of-place, dashed lines in-place. Both axes are'
        " logarithmic. Point at a mark for its figures. Bandwidths that nccl-tests printed as 0.00"
        " are in the tables alone.</p>"
    )
    yield '<div class="charts">'
    for title, lines in found.items():
        reference = reference_gbs(title, reports)
        for spec in (charts.bandwidth(title, lines, reference), charts.latency(title, lines)):
            yield _chart(spec, specs)
    yield "</div>"


def _chart(spec: charts.Spec, specs: dict[str, charts.Spec], more: str = "") -> str:
    name = f"chart{len(specs)}"
    specs[name] = spec
    return f'<div class="chart{more}" id="{name}"></div>'


def _figures(report: Report, table: Table, is_one_of_many: bool) -> str:
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
    heads = ("bytes", "type", "op", *_HALF, *_HALF)
    halves = "".join(f'<th colspan="4">{half}</th>' for half in HALVES)
    first = f'<tr><th colspan="3"></th>{halves}</tr>'
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return (
        f'<summary>{escape("; ".join(notes))}</summary><div class="scroll">'
        f'<table class="figures"><thead>{first}<tr>{_heads(heads)}</tr></thead>'
        f"<tbody>\n{lines}</tbody></table></div>"
    )


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


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _heads(names: Iterable[str]) -> str:
    return "".join(f'<th scope="col">{name}</th>' for name in names)


def _details(report: Report, specs: dict[str, charts.Spec], is_one_of_many: bool) -> Iterable[str]:
    """Yield the sections about one run alone."""
    of = f" of {escape(report.run.run_id)}" if is_one_of_many else ""
    if report.pairs:
        yield f"<h2>Pairs of hosts{of}</h2>"
        yield '<div class="charts">' + _chart(charts.heat_map(report.pairs), specs) + "</div>"
    yield f"<h2>Resources{of}</h2>"
    yield from _resources(report, specs)
    yield f"<h2>Transport{of}</h2>"
    yield _transport(report)
    yield f"<h2>Failures{of}</h2>"
    yield _failures(report)
    yield f"<h2>Timeline{of}</h2>"
    yield from _timeline(report, specs)
    yield f"<h2>Environment{of}</h2>"
    yield _environment(report)


def _resources(report: Report, specs: dict[str, charts.Spec]) -> Iterable[str]:
    if not report.used:
        yield f"<p>{report_metrics.NONE_KEPT}</p>"
        return
    if idle := report_metrics.idle_lines(report):
        yield _list(map(escape, idle))
    yield f'<p class="sub">{report_metrics.NOTE}</p>'
    head, rows = report_metrics.table(report)
    yield _table(rows, head)
    drawn = "".join(_chart(spec, specs) for spec in report_metrics.curves(report))
    yield f'<div class="charts">{drawn}</div>'


def _transport(report: Report) -> str:
    seen = [finding for finding in report.findings if finding.kind == "network_seen"]
    rows = []
    for rank, name in enumerate(report.names):
        words = [
            network.text.removeprefix(f"{name} ")
            + ("" if network.level == "proof" else f" ({network.level})")
            for network in seen
            if network.rank == rank
        ]
        rows.append(
            (escape(name), escape("; ".join(words)) or "NCCL printed nothing that shows it")
        )
    return _table(rows, ("node", "what NCCL's lines show"))


def _failures(report: Report) -> str:
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
    if not lines:
        return "<p>None.</p>"
    return _list(map(escape, lines))


def _list(items: Iterable[str]) -> str:
    """Return a list of items that are HTML already."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _timeline(report: Report, specs: dict[str, charts.Spec]) -> Iterable[str]:
    line = report.timeline
    if not line.moments:
        yield "<p>The logs of this run are not kept any more.</p>"
        return
    yield _chart(charts.gantt(line), specs, " wide")
    rows = [
        (f"{moment.at:.1f} s", escape(moment.node or "run"), escape(moment.text))
        for moment in line.moments
    ]
    events = _table(rows, ("after", "node", "event"))
    yield f"<details><summary>{len(rows)} events</summary>{events}</details>"


def _environment(report: Report) -> str:
    setting = report.setting
    if setting is None:
        return "<p>Not known.</p>"
    rows = [
        (f"<code>{escape(name)}</code>", f"<code>{escape(value)}</code>")
        for name, value in setting.environment.items()
    ]
    rows += [(f"<code>{escape(name)}</code>", "a secret, not kept") for name in setting.secrets]
    return (
        '<p class="sub">The variables that gpuctl set on all nodes. Values that look like secrets'
        f" are shown as ***.</p>{_table(rows, ('variable', 'value'))}"
    )


def _table(rows: Iterable[Sequence[Any]], heads: Sequence[str]) -> str:
    """Return a table of cells that are HTML already; the first one of a row is its head."""
    head = f"<thead><tr>{_heads(heads)}</tr></thead>" if heads else ""
    lines = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'
        for first, *cells in rows
    )
    return f'<div class="scroll"><table>{head}<tbody>\n{lines}</tbody></table></div>'
