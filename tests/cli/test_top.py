"""`gpuctl top`: what the head's samples say, as a table and as JSON."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.output import Output
from cli.render.text_table import bar
from cli.render.top import rate
from config.errors import InputError, NodeError
from config.target import Target
from engine.analysis.metrics.live import LiveRun
from engine.analysis.metrics.usage import usage
from engine.record.journal_copy import samples_path
from engine.record.metrics_record import Sample
from nodes.inventory import Inventory
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.cli.test_ps import alive, earlier
from tests.engine.analysis.test_metrics import BEFORE, GIB, LAST, sample
from tests.engine.conftest import make_inventory
from tests.terminals import lines_on_terminal

Answer = Callable[[str, str | None], tuple[LiveRun, ...]]


def live(run_id: str, **fields: Any) -> LiveRun:
    """A run of two nodes, of which the second has no GPU and no EFA, and an old sample."""
    more = {"memory": (3 * GIB, 4 * GIB), "network": (5, 2_000_001_050), **fields}
    first = usage(BEFORE, LAST.model_copy(update=more), {1: LAST.time - 5400}, 112.0)
    second = usage(sample(50, 1, cpu_s=0), sample(60, 1, cpu_s=40, cores=4), {}, 112.0)
    return LiveRun(run_id=run_id, name="job", nodes=("node0", "node1"), usages=(first, second))


@pytest.fixture
def heads(remembered: Target, monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """The heads of the clusters `demo` and `other` answer with the one function in the list."""
    for name in ("demo", "other"):
        remember(make_inventory(2).model_copy(update={"cluster": name}), remembered)
    answers: list[Answer] = [lambda *_: ()]

    async def ask(inventory: Inventory, run_id: str | None = None) -> tuple[LiveRun, ...]:
        return answers[0](inventory.cluster, run_id)

    monkeypatch.setattr("operations.usage.live_runs", ask)
    return answers


def gpuctl(*words: str) -> Result:
    return CliRunner().invoke(app, ["top", *words])


def on_demo(cluster: str, run_id: str | None) -> tuple[LiveRun, ...]:
    return (live("train-000001"),) if cluster == "demo" else ()


def price(target: Target) -> float:
    known = ClusterStore(target).record("demo")
    assert known is not None
    assert known.resolved.instance_type.price_usd_h
    return known.resolved.instance_type.price_usd_h


def test_a_cluster_with_its_runs_and_idle_gpus(heads: list[Answer], remembered: Target) -> None:
    heads[0] = on_demo
    cost = price(remembered) / 2 * 1.5
    assert gpuctl("demo").stdout.splitlines() == [
        "Run train-000001 on cluster demo",
        "NODE             CPU           MEMORY        DISK      NETWORK   EFA      GPU          "
        " GPU MEMORY    POWER  TEMP",
        "node0            █▌      25 %  ████▌   75 %  50 / 200  0 / 200M  10 / 20  ██▊     45 %"
        "  ███     50 %  600 W  50 °C",
        "node1 (52s ago)  ██████ 100 %  -             -         -         -        -             -"
        "             -      -",
        f"! node0: GPU 1 has been idle for 1h 30m, which cost about ${cost:,.2f}",
    ]


def test_a_line_for_each_gpu(heads: list[Answer]) -> None:
    heads[0] = on_demo
    assert gpuctl("demo", "--gpus").stdout.splitlines()[4:9] == [
        "",
        "NODE   GPU  USED          MEMORY        POWER  TEMP   ECC  NVLINK",
        "node0    0  █████▌  90 %  ███     50 %  300 W  50 °C  0    200 / 500",
        "node0    1           0 %  ███     50 %  300 W  50 °C  0    -",
        "Source: nvidia-smi",
    ]


def test_usage_on_a_narrow_terminal_lacks_columns_in_its_order(heads: list[Answer]) -> None:
    heads[0] = on_demo
    shown = lines_on_terminal("top", "demo", "--once", "--gpus")
    assert shown[1:4] == [
        "NODE             CPU           MEMORY        EFA      GPU           GPU MEMORY",
        "node0            █▌      25 %  ████▌   75 %  10 / 20  ██▊     45 %  ███     50 %",
        "node1 (52s ago)  ██████ 100 %  -             -        -             -",
    ]
    assert shown[5].split() == ["NODE", "GPU", "USED", "MEMORY", "POWER", "TEMP", "ECC", "NVLINK"]
    small = lines_on_terminal("top", "demo", "--once", "--gpus", columns=60)
    assert small[1].split() == ["NODE", "CPU", "GPU", "GPU", "MEMORY"]
    assert small[5].split() == ["NODE", "GPU", "USED", "MEMORY", "ECC", "NVLINK"]


def test_every_cluster_by_default(heads: list[Answer]) -> None:
    heads[0] = on_demo
    lines = gpuctl().stdout.splitlines()
    assert lines[0] == "Run train-000001 on cluster demo"
    assert lines[-1] == "No run on cluster other has sent a sample."


def test_a_head_of_several_that_does_not_answer_is_a_warning(heads: list[Answer]) -> None:
    def answer(cluster: str, run_id: str | None) -> tuple[LiveRun, ...]:
        if cluster == "other":
            raise NodeError("node0 (10.0.0.1) did not answer within 8 s", "")
        return (live("train-000001"),)

    heads[0] = answer
    done = gpuctl("--json")
    assert [one["cluster"] for one in json.loads(done.stdout)] == ["demo", "other"]
    assert done.stderr == (
        "gpuctl: warning: what cluster other uses is unknown:"
        " node0 (10.0.0.1) did not answer within 8 s\n"
    )
    alone = gpuctl("other")
    assert isinstance(alone.exception, NodeError)


def test_the_document_has_every_figure(heads: list[Answer], remembered: Target) -> None:
    heads[0] = on_demo
    (cluster,) = json.loads(gpuctl("demo", "--json").stdout)
    (run,) = cluster["runs"]
    first, second = run["nodes"]
    assert (run["run_id"], first["node"], second["node"]) == ("train-000001", "node0", "node1")
    assert (first["cpu"], first["gpus"][0]["watts"], second["gpus"]) == (2.0, 300.0, [])
    cost = round(price(remembered) / 2 * 1.5, 2)
    assert cluster["idle"] == [
        {"node": "node0", "gpus": [1], "seconds": 5402.0, "cost_usd": pytest.approx(cost, 0.01)}
    ]


def test_a_run_is_asked_for_on_its_cluster(heads: list[Answer], remembered: Target) -> None:
    asked = []

    def answer(cluster: str, run_id: str | None) -> tuple[LiveRun, ...]:
        asked.append((cluster, run_id))
        return ()

    heads[0] = answer
    run_id = alive(remembered)
    assert gpuctl("alive").stdout == "No run on cluster demo has sent a sample.\n"
    assert asked == [("demo", run_id)]


def test_a_run_that_is_over_has_means_and_peaks(heads: list[Answer], remembered: Target) -> None:
    import gzip

    run_id = earlier(remembered, "over", 1)
    with gzip.open(samples_path(remembered.runs, run_id), "wt") as file:
        for one in (BEFORE, LAST, Sample(time=100, rank=1), Sample(time=160, rank=1)):
            file.write(one.model_dump_json() + "\n")
    assert gpuctl("over").stdout.splitlines() == [
        "Run over-000001 is over. Means and peaks by node:",
        "node      cores used  memory peak   disk  network    EFA  GPU used  GPU memory peak  power"
        "  hottest  ECC errors  GPU hours idle",
        "number 0    2.0 of 8        1 KiB  3 KiB    1 KiB  1 KiB      35 %          1.0 GiB  600 W"
        "    50 °C           0             0.0",
        "number 1           -            -      -        -      -         -                -      -"
        "        -           -               -",
    ]
    assert json.loads(gpuctl("over", "--json").stdout)["nodes"][0]["cpu"] == 2.0
    (_, at_100, *_), (_, at_60, *_) = (
        lines_on_terminal("top", "over", columns=columns) for columns in (100, 60)
    )
    assert re.split("  +", at_100) == [
        *("node", "cores used", "memory peak", "EFA", "GPU used", "GPU memory peak", "ECC errors"),
        "GPU hours idle",
    ]
    assert re.split("  +", at_60) == ["node", "GPU used", "GPU memory peak", "GPU hours idle"]


def test_a_run_without_metrics_says_so(heads: list[Answer], remembered: Target) -> None:
    run_id = earlier(remembered, "old", 1)
    refused = gpuctl("old")
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        f"run {run_id} is over, and this machine has no metrics of it;"
        " `gpuctl run` and `gpuctl attach` keep them at a run's end"
    )


def test_without_a_cluster_there_is_nothing_to_watch(remembered: Target) -> None:
    refused = gpuctl()
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == "no cluster is ready; see `gpuctl status` for all"


def test_a_redrawn_table_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    monkeypatch.setenv("LINES", "3")
    Output().redraw(["123456789", "a\x1b[31mb", "three", "four"])
    assert capsys.readouterr().out == "\033[H\033[2J12345\nab\n"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (None, "-"),
        (0.0, "         0 %"),
        (0.01, "▏        1 %"),
        (0.5, "███     50 %"),
        (1.0, "██████ 100 %"),
        (1.7, "██████ 170 %"),
    ],
)
def test_bars(part: float | None, text: str) -> None:
    assert bar(part) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "-"),
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (9960, "10k"),
        (12_400_000, "12M"),
        (3.4e9, "3.4G"),
        (999.9e9, "1.0T"),
    ],
)
def test_rates(amount: float | None, text: str) -> None:
    assert rate(amount) == text
