"""What a report shows of a run's metrics: means and peaks, idle GPUs, and the course in charts."""

import json
import re
from typing import Any

import pytest

from cli.render.report import curves
from cli.render.report import page as report_page
from config.catalogue.instance_types import price_usd_h
from engine.analysis.metrics.summary import course, summaries
from engine.analysis.report import Report
from engine.record.metrics_record import Sample
from engine.record.run_context import Setting
from tests.cli.test_report import report_of
from tests.engine.analysis.test_metrics import gpu, sample

HOUR = [
    sample(
        at, rank, cpu_s=at * 4.0, cores=8, memory=(1 << 30, 1 << 31), network=(at * 500, at * 500),
        gpus=[gpu(0, 90, watts=500), gpu(1, 0 if rank else 90, watts=100)],
    )
    for rank in (0, 1)
    for at in range(1000, 4601, 60)
]  # fmt: skip


def report(samples: list[Sample], **fields: Any) -> Report:
    setting = Setting(
        type="task", region="us-east-1", zone="us-east-1a", instance_type="p4d.24xlarge",
        is_spot=False,
    )  # fmt: skip
    used = {"used": summaries(samples), "course": course(samples), "setting": setting}
    return report_of(()).model_copy(update={**used, **fields})


def section(one: Report) -> str:
    page = report_page([one], "", "0")
    return page.partition("<h2>Resources</h2>")[2].partition("<h2>")[0]


def test_the_section_has_means_peaks_and_idle_gpus() -> None:
    text = section(report(HOUR))
    price = price_usd_h("p4d.24xlarge")
    assert price is not None
    assert re.findall("<li>(.*)</li>", text) == [
        f"node1: GPU 1 has been idle for 1h 00m, which cost about ${price / 2:,.2f}"
    ]
    assert re.findall('scope="col">(.*?)</th>', text) == [
        "node", "cores used", "memory peak", "network", "GPU used", "GPU memory peak", "power",
        "hottest", "ECC errors", "GPU hours idle",
    ]  # fmt: skip
    rows = [
        re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall("<tr>(.*)</tr>", text)
    ][1:]
    assert rows == [
        [
            "node0",
            "4.0 of 8",
            "1.0 GiB",
            "3.4 MiB",
            "90 %",
            "1.0 GiB",
            "600 W",
            "50 °C",
            "0",
            "0.0",
        ],
        [
            "node1",
            "4.0 of 8",
            "1.0 GiB",
            "3.4 MiB",
            "45 %",
            "1.0 GiB",
            "600 W",
            "50 °C",
            "0",
            "1.0",
        ],
    ]
    assert text.count('<div class="chart"') == 5


def test_without_metrics_the_section_says_so() -> None:
    assert section(report([])) == (
        "\n<p>No client of this machine has fetched metrics of this run.</p>\n"
    )


def test_without_a_price_the_cost_is_left_out() -> None:
    assert "GPU 1 has been idle for 1h 00m</li>" in section(report(HOUR, setting=None))


def test_the_charts_are_vega_lite() -> None:
    vl_convert = pytest.importorskip("vl_convert")
    specs = list(curves(report(HOUR)))
    assert [spec["title"] for spec in specs] == [
        "GPUs in use",
        "GPU memory, fullest GPU",
        "Network, received and sent",
        "Processors in use",
        "Memory in use",
    ]
    first = specs[0]["data"]["values"][0]
    assert first == {"at": 0.0, "lowest": 45.0, "mean": 67.5, "highest": 90.0}
    drawn = vl_convert.vegalite_to_svg(json.dumps({**specs[0], "width": 400}))
    assert drawn.count('role="graphics-symbol"') >= 61  # a point for each minute
