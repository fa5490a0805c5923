"""The charts of a report as Vega-Lite specifications; no figure depends on colour alone.

Vega-Lite: https://vega.github.io/vega-lite/docs (version 6, 2026-11-22).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.analysis.bisect.report import Bisect
from engine.analysis.bisect.verdict import pair_speeds
from engine.analysis.comparison import HALVES, Figures, Half, Series, measurements
from engine.analysis.metrics.summary import Curve
from engine.analysis.report import Pair, Report, Timeline

Spec = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colours of Okabe and Ito, which differ for any colour vision."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left")
_MOST = len(_COLOURS)
_FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_CONFIG = {
    "font": _FONT,
    "background": "white",
    "view": {"stroke": None},
    "axis": {
        **{"gridColor": "#e3e3e3", "domainColor": "#777", "tickColor": "#777"},
        **{"labelColor": "#333", "titleColor": "#333", "titleFontWeight": "normal"},
        **{"labelFontSize": 11, "titleFontSize": 12},
    },
    "legend": {
        **{"orient": "bottom", "title": None, "labelFontSize": 12, "symbolStrokeWidth": 2},
        "layout": {"bottom": {"anchor": "start", "direction": "vertical"}},
        **{"labelLimit": 600, "columns": 1, "symbolSize": 90, "labelColor": "#333"},
    },
    "title": {"anchor": "start", "fontSize": 14, "fontWeight": 600, "color": "#111"},
}
_SIZES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~g') + ' GiB'"
    " : datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : datum.value + ' B'"
)
"""Vega's expression for the label of a size."""
_TIP = (
    ("label", "test"),
    ("half", "half"),
    ("size", "bytes"),
    ("busbw", "busbw GB/s"),
    ("algbw", "algbw GB/s"),
    ("time", "time us"),
    ("fastest", "fastest us"),
    ("slowest", "slowest us"),
    ("repeats", "repeats"),
    ("wrong", "wrong values"),
)
Lines = Mapping[str, Mapping[tuple[int, Half], Figures]]
"""The figures of each line of a chart, by the line's label."""


def lines_by_collective(reports: Sequence[Report]) -> dict[str, Lines]:
    """Return the lines of each chart by its title: one per collective, or per test if many.

    Pairs of hosts are left out where they are too many for a chart, or those of a bisect: a heat
    map has them.
    """
    drawn = [
        (report, series, points)
        for report in reports
        for series, points in measurements(report.tables).items()
        if len(series.hosts) != 2 or (len(report.pairs) <= _MOST and report.bisect is None)
    ]
    charts: dict[str, dict[str, Mapping[tuple[int, Half], Figures]]] = {}
    for report, series, points in drawn:
        alike = [other for other in drawn if other[1].collective == series.collective]
        title = series.collective if len(alike) <= _MOST else series.title
        label = _label(report, series, len(reports) > 1)
        charts.setdefault(title, {})[label] = points
    return dict(charts)


def bandwidth(title: str, lines: Lines, reference: float | None) -> Spec:
    """Return the chart of bus bandwidth over size, with the network's bandwidth as a line."""
    values = [value for value in _values(lines) if value["busbw"] > 0]
    layers: list[Spec] = [*_lines("busbw", "bus bandwidth, GB/s", lines)]
    if reference is not None:
        text = f"network of a node, {reference:g} GB/s"
        line = {"datum": reference, "type": "quantitative"}
        rule = {"type": "rule", "strokeDash": [2, 3], "color": "#555", "strokeWidth": 1.5}
        words = {"type": "text", "align": "left", "dy": -7, "dx": 4, "color": "#333", "text": text}
        words["fontSize"] = 11
        once: Spec = {"values": [{}]}
        layers.append({"data": once, "mark": rule, "encoding": {"y": line}})
        layers.append({"data": once, "mark": words, "encoding": {"y": line, "x": {"value": 0}}})
    return _chart(f"{title}: bus bandwidth", values, layers)


def latency(title: str, lines: Lines) -> Spec:
    """Return the chart of time over size, with the extremes of repeats as vertical lines."""
    layers = [*_lines("time", "time, microseconds", lines)]
    if any(figures.repeats > 1 for points in lines.values() for figures in points.values()):
        between = {"y": {"field": "fastest", "type": "quantitative"}, "y2": {"field": "slowest"}}
        mark = {"type": "rule", "opacity": 0.6}
        layers.append({"mark": mark, "encoding": {"x": _x(), "color": _colour(lines), **between}})
    return _chart(f"{title}: time", _values(lines), layers)


def heat_map(pairs: Sequence[Pair]) -> Spec:
    """Return the heat map of the bandwidth between hosts, which has every pair twice."""
    both = {
        (host, other): pair.busbw
        for pair in pairs
        for host, other in ((pair.first, pair.second), (pair.second, pair.first))
    }
    names = sorted({name for pair in both for name in pair})
    return _heat_map("Bus bandwidth between two hosts, GB/s", both, names, (None, None))


def pairs_of_bisect(bisect: Bisect) -> Spec:
    """Return the heat map of the speed from every node to every other; 0 GB/s is a failure."""
    speeds = {
        (bisect.nodes[sender], bisect.nodes[receiver]): speed or None
        for (sender, receiver), speed in pair_speeds(bisect.measured).items()
    }
    title = f"Bisect of {bisect.cluster}: from sender to receiver, GB/s"
    return _heat_map(title, speeds, bisect.nodes, ("sender", "receiver"))


def _heat_map(
    title: str,
    speeds: Mapping[tuple[str, str], float | None],
    names: Sequence[str],
    heads: tuple[str | None, str | None],
) -> Spec:
    """Return the heat map with a column for each first name, and the figure in every cell."""
    values = [
        {"first": host, "second": other, "busbw": speed,
         "text": "failed" if speed is None else f"{speed:.4g}"}
        for (host, other), speed in speeds.items()
    ]  # fmt: skip
    known = [speed for speed in speeds.values() if speed is not None]
    middle = (min(known, default=0) + max(known, default=0)) / 2
    axis = {"type": "nominal", "sort": list(names)}
    axes = {
        "x": {"field": "first", **axis, "title": heads[0]},
        "y": {"field": "second", **axis, "title": heads[1]},
    }
    shade = {
        **{"field": "busbw", "type": "quantitative", "title": "bus bandwidth, GB/s"},
        "scale": {"scheme": "greys", "zero": False},
        "legend": None,
    }
    dark = {"test": f"datum.busbw > {middle}", "value": "white"}
    layers: list[Spec] = [
        {"mark": {"type": "rect", "stroke": "#777"}, "encoding": {"color": shade}},
        {"mark": {"type": "text"},
         "encoding": {"text": {"field": "text"}, "color": {"condition": dark, "value": "black"}}},
    ]  # fmt: skip
    size = {"width": 64 * len(names), "height": 36 * len(names)}
    return {**_chart(title, values, layers), "encoding": axes, **size}


def gantt(timeline: Timeline) -> Spec:
    """Return the chart of when each node's job ran, and when something happened."""
    seconds = {"type": "quantitative", "title": "seconds after the run's start"}
    rows = {"field": "node", "type": "nominal", "title": None, "sort": ["run", *timeline.nodes]}
    spans = [span.model_dump() for span in timeline.spans]
    moments = [{**moment.model_dump(), "node": moment.node or "run"} for moment in timeline.moments]
    fields = (("node", "node"), ("start", "start"), ("end", "end"), ("outcome", "outcome"))
    bar: Spec = {
        "data": {"values": spans},
        "mark": {"type": "bar", "height": 12, "color": "#9cc3de", "stroke": "#0072B2"},
        "encoding": {
            "x": {"field": "start", **seconds}, "x2": {"field": "end"}, "y": rows,
            "tooltip": _tip(fields),
        },
    }  # fmt: skip
    tick: Spec = {
        "data": {"values": moments},
        "mark": {"type": "tick", "thickness": 2, "size": 22, "color": "#222"},
        "encoding": {
            "x": {"field": "at", **seconds}, "y": rows,
            "tooltip": _tip((("at", "s"), ("node", "node"), ("text", "event"))),
        },
    }  # fmt: skip
    return {**_chart("", [], [bar, tick]), "height": 30 * (len(timeline.nodes) + 1)}


def curve(drawn: Curve) -> Spec:
    """Return the chart of a metric's course: the mean of the nodes, and a band of all of them."""
    x = {"field": "at", "type": "quantitative", "title": "seconds after the first sample"}
    y = {"type": "quantitative", "title": drawn.unit, "scale": {"zero": True}}
    names = ("lowest", "mean", "highest")
    tip = _tip((("at", "s"), *((name, f"{name}, {drawn.unit}") for name in names)))
    band = {"x": x, "y": {"field": "lowest", **y}, "y2": {"field": "highest"}}
    mean = {"x": x, "y": {"field": "mean", **y}, "tooltip": tip}
    layers: list[Spec] = [
        {"mark": {"type": "area", "color": "#9cc3de", "opacity": 0.6}, "encoding": band},
        {"mark": {"type": "line", "color": _COLOURS[0], "point": True}, "encoding": mean},
    ]
    values = [point.model_dump() for point in drawn.points]
    return {**_chart(drawn.title, values, layers), "height": 180}


def page_of(charts: Sequence[Spec]) -> Spec:
    """Return one picture of the charts, one below the other."""
    fixed = [
        {name: value for name, value in chart.items() if name not in {"$schema", "config"}}
        | ({"width": 760, "height": 360} if chart["width"] == "container" else {})
        for chart in charts
    ]
    apart = {"color": "independent", "shape": "independent", "strokeDash": "independent"}
    return {
        "$schema": _SCHEMA, "config": _CONFIG, "vconcat": fixed,
        "resolve": {"scale": apart}, "spacing": 40, "padding": 20,
    }  # fmt: skip


def _label(report: Report, series: Series, is_one_of_many: bool) -> str:
    words = series.title.partition(" ")[2] or series.title
    title = words if series.node == 0 else f"{words} on {report.node(series.node)}"
    return f"{report.run.run_id}: {title}" if is_one_of_many else title


def _values(lines: Lines) -> list[Spec]:
    return [
        {
            "label": label, "half": half, "size": size, "busbw": figures.busbw,
            "algbw": figures.algbw, "time": figures.time_us, "fastest": figures.fastest_us,
            "slowest": figures.slowest_us, "repeats": figures.repeats,
            "wrong": "unchecked" if figures.wrong is None else figures.wrong,
        }
        for label, points in lines.items()
        for (size, half), figures in points.items()
    ]  # fmt: skip


def _chart(title: str, values: list[Spec], layers: list[Spec]) -> Spec:
    named = {"title": title} if title else {}
    return {
        "$schema": _SCHEMA, **named, "config": _CONFIG, "width": "container", "height": 300,
        "data": {"values": values}, "layer": layers,
    }  # fmt: skip


def _lines(field: str, title: str, lines: Lines) -> list[Spec]:
    y = {"field": field, "type": "quantitative", "title": title, "scale": {"type": "log"}}
    y["axis"] = {"format": "~g", "tickCount": 6}
    dash = {
        "field": "half", "type": "nominal",
        "scale": {"domain": list(HALVES), "range": [[1, 0], [6, 4]]},
        "legend": {"symbolSize": 900, "columns": 2},
    }  # fmt: skip
    shape = {
        "field": "label", "type": "nominal",
        "scale": {"domain": list(lines), "range": list(_SHAPES)},
    }  # fmt: skip
    both = {"x": _x(), "y": y, "color": _colour(lines)}
    point = {"type": "point", "size": 46, "strokeWidth": 1.6, "fill": "white", "opacity": 1}
    return [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {**both, "strokeDash": dash}},
        {"mark": point, "encoding": {**both, "shape": shape, "tooltip": _tip(_TIP)}},
    ]


def _x() -> Spec:
    return {
        "field": "size", "type": "quantitative", "title": "message size, bytes",
        "scale": {"type": "log", "base": 2},
        "axis": {"labelExpr": _SIZES, "labelOverlap": True, "tickCount": 10},
    }  # fmt: skip


def _colour(lines: Lines) -> Spec:
    scale = {"domain": list(lines), "range": list(_COLOURS)}
    return {"field": "label", "type": "nominal", "scale": scale}


def _tip(fields: Sequence[tuple[str, str]]) -> list[Spec]:
    return [{"field": field, "title": title} for field, title in fields]
