"""Vega-Lite's charts as a picture, and what a page needs to draw them."""

from collections.abc import Sequence

import vl_convert

from config.errors import InputError
from engine.analysis import charts
from engine.analysis.report import Report, bisects_in, reference_gbs


def chart_script() -> str:
    """Return the script that has `vegaEmbed`."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def picture(reports: Sequence[Report]) -> bytes:
    """Return the PNG of bandwidths and bisects. Raise InputError if there are none."""
    drawn = [
        charts.bandwidth(title, lines, reference_gbs(title, reports))
        for title, lines in charts.lines_by_collective(reports).items()
    ]
    drawn += [charts.pairs_of_bisect(bisect) for bisect in bisects_in(reports)]
    drawn += [charts.heat_map(report.pairs) for report in reports if report.pairs]
    if not drawn:
        raise InputError("no nccl-tests table was printed", "leave --png out")
    return vl_convert.vegalite_to_png(charts.page_of(drawn), scale=2)
