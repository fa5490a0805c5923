"""The report: a page that opens without a network, and has the figures of the history."""

import json
import re
import struct
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import run as run_program
from typing import Any

import pytest

from cli.commands.report import _write as write
from cli.render.picture import picture as picture_of
from cli.render.report import page as report_page
from config.errors import InputError
from config.target import Target
from engine.analysis import charts
from engine.analysis.bisect.report import Bisect, verdict_line
from engine.analysis.bisect.report import keep as write_bisect
from engine.analysis.bisect.rounds import Trial
from engine.analysis.bisect.verdict import Measurement, suspects
from engine.analysis.report import Report, Timeline, pairs_in
from engine.contract.event import to_line
from engine.contract.head_events import FollowedFailure, RunFinished, RunNode, RunStarted
from engine.contract.table import Facts, Row, TableRank, Timing
from engine.contract.worker_events import NodeExited, NodeStarted, Output
from engine.record.history import History, KeptFinding, RunRecord
from engine.record.journal_copy import JournalCopy
from engine.record.result import Table
from engine.record.run_context import Setting
from operations.chosen_target import ChosenTarget
from operations.run_report import run_report
from provision.state.record import Lease
from provision.state.store import ClusterStore
from tests.cli.chromium import open_page
from tests.cli.test_command import ROOT, gpuctl
from tests.engine.conftest import make_plan
from tests.engine.record.test_history import result
from tests.provision.test_record import a_record

pytestmark = pytest.mark.slow

EVIL = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"


def ranks(*hosts: str) -> tuple[TableRank, ...]:
    return tuple(
        TableRank(group=0, rank=rank, pid=1, host=host, device=0, pci="", name="H100")
        for rank, host in enumerate(hosts)
    )


def table(collective: str, *hosts: str, scale: float = 1.0) -> Table:
    def half(size: int, share: float) -> Timing:
        time_us = scale * share * (20 + size / 3000)
        busbw = round(size / time_us / 1000, 2)
        return Timing(time_us=round(time_us, 2), algbw=busbw, busbw=busbw, wrong=0)

    return Table(
        facts=Facts(rank=0, collective=collective, nccl="2.28.9", ranks=ranks(*hosts)),
        rows=tuple(
            Row(
                size=8 << 2 * step, count=2 << 2 * step, dtype="float", redop="sum", root=-1,
                out_of_place=half(8 << 2 * step, 1), in_place=half(8 << 2 * step, 0.9),
            )
            for step in range(14)
        ),
    )  # fmt: skip


RUNS = Path(".local/state/gpuctl/aws/runs")


def keep(
    home: Path, run_id: str, tables: list[Table], reason: str = EVIL, name: str = "job"
) -> None:
    """Keep a run whose every text from a job or a node tries to leave its place in the page."""
    runs = home / RUNS
    setting = Setting(
        type="nccl-tests", region="us-east-1", zone="us-east-1a", instance_type="p5.48xlarge",
        is_spot=False, image=EVIL, environment={"NCCL_DEBUG": EVIL}, secrets=("HF_TOKEN",),
    )  # fmt: skip
    with History(runs) as history:
        history.begin(replace(make_plan(), run_id=run_id, name=name), setting)
        for number, one in enumerate(tables):
            history.keep_table(run_id, number, one)
        for number, text in enumerate((f"node0 uses EFA: {EVIL}", "node0 uses GPUDirect RDMA")):
            finding = KeptFinding(kind="network_seen", level="proof", rank=0, text=text)
            history.keep_finding(run_id, number, finding)
        history.finish(result(run_id).model_copy(update={"reason": reason}))
    record = JournalCopy(runs, run_id)
    nodes = tuple(
        RunNode(rank=rank, name=f"node{rank}", private_ip="10.0.0.1", role="worker")
        for rank in (0, 1)
    )
    for event in (
        RunStarted(
            time=10, run_id=run_id, name="job", cluster="demo", startup_order="any",
            stop_criteria="all-done", on_stop="keep", nodes=nodes,
        ),
        *(NodeStarted(time=11 + rank, rank=rank, pid=1) for rank in (0, 1)),
        *(
            Output(time=20, rank=rank, stream="stdout", text=f"line {n}", ends_line=True)
            for n in range(60)
            for rank in (0, 1)
        ),
        *(NodeExited(time=50, rank=rank, exit_code=7, signal=None) for rank in (0, 1)),
        RunFinished(time=51, status="failed", exit_code=7, first_failed_rank=1, reason=reason),
    ):  # fmt: skip
        record.append(to_line(event))
    record.close()


def figures(tables: list[Table]) -> list[list[list[str]]]:
    """The cells of the tables, as the history has their figures."""
    return [
        [
            [
                *(str(row.size), row.dtype, row.redop or ""),
                *(
                    f"{value:.10g}"
                    for half in (row.out_of_place, row.in_place)
                    if half is not None
                    for value in (half.time_us, half.algbw, half.busbw, half.wrong or 0)
                ),
            ]
            for row in one.rows
        ]
        for one in tables
    ]


def test_the_page_opens_offline_with_the_figures_of_the_history(tmp_path: Path) -> None:
    tables = [table("all_reduce", "ip-a", "ip-b"), table("all_gather", "ip-a", "ip-b")]
    keep(tmp_path, "job-000001", tables)
    page = tmp_path / "report.html"
    done = gpuctl("report", "job-000001", "-o", str(page), home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Written: {page}\n", "")
    opened = open_page(page, tmp_path)
    assert opened.complaints == []
    assert 'data-charts="5"' in opened.dom  # two for each collective, and the timeline
    assert len(re.findall(r'<svg [^>]*class="marks"', opened.dom)) == 5
    assert opened.tables("figures") == figures(tables)
    assert ">network of a node, 400 GB/s</text>" in opened.dom
    assert "<title>Report of job-000001</title>" in opened.dom
    assert {"svg", "table"} <= opened.elements
    assert "img" not in opened.elements
    assert opened.screenshot.startswith(b"\x89PNG")
    size, busbw = tables[0].rows[-1].size, tables[0].rows[-1].out_of_place
    assert busbw is not None
    hovered = f"half: out-of-place; bytes: {size}; busbw GB/s: {busbw.busbw:g};"
    assert hovered in opened.dom
    for words in (
        '<span class="verdict failed">✗ failed</span> exit code 7',
        "p5.48xlarge, us-east-1a",
        "GPUDirect RDMA",
        "First to fail: node1",
        "at list price, for the run",
        "which failed first:",
        ">line 10\nline 11\n",
        "line 59</pre>",
        ">message size, bytes</text>",
        f'<a href="file://{tmp_path}/{RUNS}/job-000001/journal.jsonl">',
        "<code>HF_TOKEN</code></th><td>a secret, not kept",
    ):
        assert words in opened.dom


def report_of(tables: tuple[Table, ...], **fields: Any) -> Report:
    run = RunRecord(
        run_id="job-000001", name="job", cluster="demo", nodes=5, on_stop="keep", status="done",
        exit_code=0, first_failed_rank=None, reason="", started=datetime.now(UTC), ended=None,
        cost_usd=None,
    )  # fmt: skip
    return Report(run=run, setting=None, tables=tables, findings=(), timeline=Timeline(), **fields)


def test_a_run_without_results_has_a_page_with_its_lease_and_cost() -> None:
    end = datetime(2026, 11, 23, 12, tzinfo=UTC)
    html = report_page([report_of((), lease_end=end, files=(Path("/r/a b<"),))], "", "1")
    assert "No nccl-tests table was printed." in html
    assert "the cluster ends by itself at 2026-11-23 12:00 UTC" in html
    assert "not known: the cluster was kept" in html
    assert '<a href="file:///r/a%20b%3C">/r/a b&lt;</a>' in html
    bare = report_page([report_of(())], "", "1")
    assert "Lease" not in bare
    assert "This machine has no file of this run any more." in bare
    assert "which failed first" not in bare


def test_a_report_has_the_lease_of_the_cluster_that_the_run_was_on(remembered: Target) -> None:
    """Not the lease of a cluster of the same name that was created after the run."""
    store = ClusterStore(remembered)
    created = a_record("demo").created
    end = created + timedelta(hours=8)
    record = a_record("demo").model_copy(update={"lease": Lease(end=end, moved=created)})
    run = report_of(()).run.model_copy(update={"started": created + timedelta(minutes=5)})
    chosen = ChosenTarget(region="us-east-1")
    assert run_report(chosen, run).lease_end is None, "this machine has no record"
    store.write(record)
    assert run_report(chosen, run).lease_end == end
    store.write(record.model_copy(update={"created": run.started + timedelta(minutes=1)}))
    assert run_report(chosen, run).lease_end is None
    store.write(record.model_copy(update={"lease": None}))
    assert run_report(chosen, run).lease_end is None, "the cluster has no lease"


def test_failures_after_the_first_are_listed_behind_it() -> None:
    report = report_of((table("all_reduce", "ip-a"),))
    followed = (
        FollowedFailure(nodes=("node1", "node2"), text="killed by SIGKILL <b>"),
        FollowedFailure(nodes=("node4",), text="exited with 1"),
    )
    failed = {"status": "failed", "reason": "node0 exited with 7", "followed": followed}
    run = report.run.model_copy(update={**failed, "first_failed_rank": 0})
    page = report_page([report.model_copy(update={"run": run})], "", "1")
    section = page.partition("<h2>Failures</h2>\n")[2].partition("\n<h2>")[0]
    assert section == (
        "<ul><li>Run failed: node0 exited with 7</li><li>First to fail: node0</li>"
        "<li>Then node[1-2]: killed by SIGKILL &lt;b&gt;</li>"
        "<li>Then node4: exited with 1</li></ul>"
    )


def bisect_of(nodes: int, slow: int, dead: tuple[int, int] = (-1, -1)) -> Bisect:
    """A bisect of nodes without NVLink, in two runs; one direction between two nodes fails."""
    trials = [
        Trial(collective="broadcast", nodes=(one, two))
        for one in range(nodes)
        for two in range(nodes)
        if one != two
    ]
    rings = [tuple(range(nodes)), tuple(node for node in range(nodes) if node != slow)]
    trials += [Trial(collective="all_reduce", nodes=ring) for ring in rings]
    measured = tuple(
        Measurement(trial=one, gbps=0, error="<b>no route</b>")
        if one.nodes == dead
        else Measurement(trial=one, gbps=4.5678 if slow in one.nodes else 40 + one.nodes[0])
        for one in trials
    )
    names = tuple(f"node{number}" for number in range(nodes))
    return Bisect(
        cluster="demo", began=datetime(2026, 11, 22, 20, 1, 2, tzinfo=UTC), nodes=names,
        planned_runs=3, runs=("bisect-000001", "bisect-000002"), measured=measured,
        suspects=suspects(measured), verdict=verdict_line(names, suspects(measured), measured),
    )  # fmt: skip


def test_runs_are_drawn_together_with_the_whole_bisect_of_a_run(tmp_path: Path) -> None:
    pairs = [("ip-a", "ip-b"), ("ip-b", "ip-c"), ("ip-a", "ip-c")]
    keep(tmp_path, "job-000001", [table("all_reduce", "ip-a", "ip-b", scale=1.5)])
    keep(tmp_path, "job-000002", [table("all_reduce", *pair) for pair in pairs])
    keep(tmp_path, "bisect-000001", [table("broadcast", *pair) for pair in pairs], name="bisect")
    keep(tmp_path, "bisect-000002", [table("all_reduce", "ip-a", "ip-b", "ip-c")], name="bisect")
    write_bisect(bisect_of(4, slow=1, dead=(2, 3)), tmp_path / RUNS)
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    runs = ["job-000001", "job-000002", "bisect-000001", "bisect-000002"]
    words = ("report", *runs, "-o", str(page), "--png", str(picture), "--json")
    done = gpuctl(*words, home=tmp_path)
    assert json.loads(done.stdout) == {"runs": runs, "files": [str(page), str(picture)]}
    text = page.read_text()
    section = text.partition("<h2>Bisect of demo</h2>\n")[2].partition("<h2>")[0]
    assert section == (
        "<p><strong>node2 and node3: 100 % below what both reach with others"
        " (node2 to node3 0 of 40 GB/s)</strong></p>\n"
        "<ul><li>also node1: 88 % below the median of 4 as sender and receiver"
        " (4.57 of 41 GB/s, 4.57 of 41.5 GB/s)</li>"
        "<li>the ring of all 4 nodes: 4.57 GB/s; without node1: 40 GB/s</li></ul>\n"
        '<div class="scroll"><div class="chart" id="chart0"></div></div>\n'
        '<div class="scroll"><table><thead><tr><th scope="col">node</th>'
        '<th scope="col">best as sender, GB/s</th><th scope="col">best as receiver, GB/s</th>'
        "</tr></thead><tbody>\n"
        '<tr><th scope="row">node0</th><td>40</td><td>43</td></tr>\n'
        '<tr><th scope="row">node1</th><td>4.568</td><td>4.568</td></tr>\n'
        '<tr><th scope="row">node2</th><td>42</td><td>43</td></tr>\n'
        '<tr><th scope="row">node3</th><td>43</td><td>40</td></tr>\n'
        "</tbody></table></div>\n"
        "<ul><li>broadcast on node2 and node3 failed: &lt;b&gt;no route&lt;/b&gt;</li></ul>\n"
        '<p class="sub">Begun 2026-11-22 20:01:02 UTC. 14 measurements in 2 of 3 planned runs:'
        " bisect-000001, bisect-000002</p>\n"
    )
    assert "<h1>4 runs of job, bisect</h1>" in text
    assert re.findall("<h2>((?:Bisect|Pairs).*)</h2>", text) == [
        "Bisect of demo",
        "Pairs of hosts of job-000002",
    ]
    (specs,) = re.findall(r'<script type="application/json" id="charts">(.*)</script>', text)
    assert [one["title"] for one in json.loads(specs).values() if "title" in one] == [
        "Bisect of demo: from sender to receiver, GB/s",
        "all_reduce: bus bandwidth",  # none of broadcast: pairs of a bisect are no lines
        "all_reduce: time",
        "Bus bandwidth between two hosts, GB/s",
    ]
    assert "job-000002: float sum, 2 ranks on 2 hosts" in specs
    data = picture.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG")
    assert (width > 1500, height > 700) == (True, True)


def test_a_run_of_pairs_of_a_bisect_has_a_page_and_a_picture() -> None:
    tables = tuple(table("broadcast", "ip-a", other) for other in ("ip-b", "ip-c"))
    bisect = bisect_of(4, slow=1)
    report = report_of(tables, bisect=bisect)
    assert re.findall("<h2>(?:Band|Tab|Pair).*</h2>", report_page([report], "", "0")) == [
        "<h2>Tables</h2>",
    ]
    width, height = struct.unpack(">II", picture_of([report])[16:24])
    assert (512 < width < 800, 288 < height < 700) == (True, True)  # cells of 128 x 72 pixels


def test_the_heat_map_of_a_bisect_has_both_directions_in_the_order_of_the_nodes() -> None:
    spec = charts.pairs_of_bisect(bisect_of(11, slow=10, dead=(2, 3)))
    cells = {(one["first"], one["second"]): one["text"] for one in spec["data"]["values"]}
    assert len(cells) == 110
    assert cells["node2", "node3"] == "failed"
    assert cells["node3", "node2"] == "43"
    assert cells["node10", "node0"] == cells["node0", "node10"] == "4.568"
    axes = spec["encoding"]
    names = [f"node{number}" for number in range(11)]
    assert [(axes[axis]["title"], axes[axis]["sort"]) for axis in ("x", "y")] == [
        ("sender", names),
        ("receiver", names),
    ]


def test_many_pairs_are_in_the_heat_map_alone() -> None:
    hosts = [f"ip-{number}" for number in range(5)]
    pairs = [(one, two) for one in hosts for two in hosts if one < two]
    tables = (table("all_reduce", *hosts), *(table("sendrecv", *pair) for pair in pairs))
    found = pairs_in(tables)
    assert [(pair.first, pair.second) for pair in found] == pairs
    report = report_of(tables, pairs=found)
    assert list(charts.lines_by_collective([report])) == ["all_reduce"]
    few = report.model_copy(update={"pairs": pairs_in(tables[:4]), "tables": tables[:4]})
    assert list(charts.lines_by_collective([few])) == ["all_reduce", "sendrecv"]
    assert pairs_in(tables[:2]) == ()
    alone = report.model_copy(update={"tables": tables[1:]})
    assert re.findall("<h2>.*</h2>", report_page([alone], "", "0"))[:2] == [
        "<h2>Tables</h2>",
        "<h2>Pairs of hosts</h2>",
    ]


def test_a_run_without_tables_and_without_logs_has_a_page(tmp_path: Path) -> None:
    with History(tmp_path / ".local/state/gpuctl/aws/runs") as history:
        history.begin(make_plan())
    page = tmp_path / "report.html"
    assert gpuctl("report", "-o", str(page), home=tmp_path).returncode == 0
    opened = open_page(page, tmp_path)
    assert opened.complaints == []
    for words in (
        "No nccl-tests table was printed.",
        "The logs of this run are not kept any more.",
        "Not known.",
        "running",
    ):
        assert words in opened.dom
    done = gpuctl("report", "job", "-o", str(page), "--png", str(page), home=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "gpuctl: error: no nccl-tests table was printed; leave --png out\n",
    )
    with pytest.raises(InputError) as error:
        write(tmp_path, b"")
    assert error.value.message == f"{tmp_path} cannot be written: Is a directory"
    assert error.value.hint == "name another file with -o or --png"


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        ("jinja2", ["report", "job"], "reports need jinja2"),
        ("vl_convert", ["report", "job"], "reports need vl-convert-python"),
        ("plotext", ["results", "job", "--plot"], "plots need plotext"),
    ],
)
def test_a_wheel_without_the_extra_names_it(
    module: str, words: list[str], message: str, tmp_path: Path
) -> None:
    keep(tmp_path, "job-000001", [table("all_reduce")])
    program = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        f"sys.argv = ['gpuctl', *{words!r}]\n"
        "import gpuctl\n"
        "gpuctl.main()\n"
    )
    done = run_program(
        [sys.executable, "-c", program], cwd=ROOT, env={"HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"gpuctl: error: {message}, which is not installed; install gpuctl with its extra"
        " `report`: uv tool install --force '.[report]' in its checkout\n"
    )


def test_a_plot_in_the_terminal_has_both_halves_and_no_colours(tmp_path: Path) -> None:
    keep(tmp_path, "job-000001", [table("all_reduce", "ip-a", "ip-b")])
    done = gpuctl("results", "job-000001", "--plot", home=tmp_path, COLUMNS="60")
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "all_reduce float sum, 2 ranks on 2 hosts: bus bandwidth in GB/s over size"
        " (o out-of-place, x in-place)"
    )
    assert len(lines) == 21
    assert max(map(len, lines[1:])) <= 60
    assert [mark in done.stdout for mark in ("o", "x", "\x1b")] == [True, True, False]
    assert lines[-1].split()[-1].endswith("M")
