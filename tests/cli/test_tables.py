"""nccl-tests' tables and the transport, as `gpuctl results` shows them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from cli.output import Output
from cli.render.tables import table_lines, transport_lines
from engine.contract.plan import Case
from engine.contract.table import Facts, Row, Timing
from engine.record.history import History, KeptFinding
from engine.record.result import Table
from tests.cli.test_command import ROOT, gpuctl
from tests.engine.conftest import make_plan
from tests.engine.record.test_history import result
from tests.terminals import terminal_as_stdout


def half(busbw: float, wrong: int | None = 0, error: float | None = None) -> Timing:
    return Timing(time_us=51.25, algbw=1, busbw=busbw, wrong=wrong, error=error)


def row(out: Timing | None, into: Timing | None, redop: str = "sum") -> Row:
    return Row(
        size=1048576,
        count=262144,
        dtype="float",
        redop=redop,
        root=-1,
        out_of_place=out,
        in_place=into,
    )


def table(*rows: Row, **facts: object) -> Table:
    known = {"rank": 0, "collective": "all_reduce", **facts}
    return Table(facts=TypeAdapter(Facts).validate_python(known), rows=rows)


def test_a_table_has_its_case_and_the_verdict_of_its_gate() -> None:
    title = "all_reduce 1 MiB, NCCL_ALGO=Ring"
    case = Case(
        number=3, title=title, collective="all_reduce", min_bytes=1 << 20, max_bytes=1 << 20
    )
    text = f"gate missed: {title}: busbw 1.50 GB/s, expected >= 380 GB/s (run file)"
    gates = [{"passed": False, "text": text}]
    lines = table_lines(table(row(half(1.5), half(2.5)), case=case, gates=gates), "node0", Output())
    assert (lines[0], lines[1]) == (f"Case 3: {title}", "all_reduce on node0")
    assert lines[-1] == f"Gate{text.removeprefix('gate')}"


def test_both_halves_and_what_was_not_checked() -> None:
    lines = table_lines(
        table(
            row(half(1.5), half(2.5, wrong=3)),
            row(half(1.5), half(2.5, wrong=None), redop="none"),
            row(None, half(2.5)),
            nccl_tests="2.19.6",
            nccl="2.28.9",
            average_busbw=2.0,
            out_of_bounds=1,
        ),
        "node0",
        Output(),
    )
    assert lines == [
        "all_reduce on node0: nccl-tests 2.19.6, NCCL 2.28.9",
        "   size              out-of-place  algbw  busbw         in-place  algbw  busbw",
        "  bytes   type   op            us   GB/s   GB/s  wrong        us   GB/s   GB/s      wrong",
        "1048576  float  sum          51.2   1.00   1.50      0      51.2   1.00   2.50          3",
        "1048576  float               51.2   1.00   1.50      0      51.2   1.00   2.50  unchecked",
        "1048576  float  sum             -      -      -      -      51.2   1.00   2.50          0",
        "Average bus bandwidth: 2 GB/s",
        "Out of bounds values: 1, failed",
    ]


def test_a_table_on_a_narrow_terminal_lacks_columns_of_both_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    big = Timing(time_us=187436.25, algbw=91.66, busbw=171.86, wrong=0)
    whole = table(replace(row(big, big), size=17179869184, dtype="bfloat16"))
    pipe = table_lines(whole, "node0", Output())[1:]
    shown = {}
    for columns in (80, 76):
        monkeypatch.setenv("COLUMNS", f"{columns}")
        with terminal_as_stdout():
            shown[columns] = table_lines(whole, "node0", Output())[1:]
    assert pipe[0].split().count("algbw") == 2
    assert shown[80] == [
        "       size                 out-of-place   busbw         in-place   busbw",
        "      bytes      type   op            us    GB/s  wrong        us    GB/s  wrong",
        "17179869184  bfloat16  sum      187436.2  171.86      0  187436.2  171.86      0",
    ]
    assert shown[76][2] == (
        "17179869184  bfloat16      187436.2  171.86      0  187436.2  171.86      0"
    )


def test_a_difference_is_shown_as_one_and_zeros_without_a_check_are_unchecked() -> None:
    old = table_lines(table(row(half(1, None, 2e-07), half(2, None, 5e-07))), "node0", Output())
    assert "error" in old[2]
    assert "2e-07" in old[3]
    unchecked = table_lines(table(row(half(1), half(2)), is_checked=False), "node0", Output())
    assert unchecked[3].count("unchecked") == 2
    broken = table_lines(table(ended_at=64, lost=2), "node0", Output())
    assert broken[-2:] == ["Incomplete: it ended at 64 bytes", "Rows that could not be read: 2"]


def test_transport_folds_the_nodes() -> None:
    def proof(rank: int, text: str) -> KeptFinding:
        return KeptFinding(
            kind="network_seen", level="proof", rank=rank, text=f"node{rank} uses {text}"
        )

    findings = [proof(rank, text) for text in ("EFA", "GPUDirect RDMA") for rank in (0, 1)]
    warning = KeptFinding(kind="output_judged", level="warning", rank=0, text="node0: careful")
    assert transport_lines([*findings, warning], ["node0", "node1"]) == [
        "Transport: node[0-1] uses EFA; node[0-1] uses GPUDirect RDMA",
        "Warning: node0: careful",
    ]
    assert transport_lines([], []) == ["Transport: NCCL printed nothing that shows it"]


def test_results_begin_with_status_and_transport(tmp_path: Path) -> None:
    plan = make_plan()
    with History(tmp_path / ".local/state/gpuctl/aws/runs") as history:
        history.begin(plan)
        history.keep_table(plan.run_id, 0, table(row(half(1), half(2))))
        history.finish(result(plan.run_id))
    done = gpuctl("results", "job", home=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "Run job-000001: failed, exit code 7: node1 exited with 7",
        "Transport: NCCL printed nothing that shows it",
    ]
    assert "all_reduce on node0" in lines


def test_a_document_draws_no_table(tmp_path: Path) -> None:
    plan = make_plan()
    with History(tmp_path / "gpuctl/aws/runs") as history:
        history.begin(plan)
        history.keep_table(plan.run_id, 0, table(row(half(1), half(2))))
    program = (
        "import sys, gpuctl\nsys.argv = ['gpuctl', 'results', 'job', '--json']\n"
        "try: gpuctl.main()\nexcept SystemExit: pass\nprint('rich' in sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(json.loads(done.stdout)["tables"]) == 1
    assert done.stderr == "False\n"
