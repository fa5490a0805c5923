"""Gates on bandwidths: what they expect, how they are judged, and that they fail a run."""

import re
from dataclasses import replace
from typing import Any, get_args

import pytest

from config.catalogue.instance_types import catalogue
from config.catalogue.reference_figures import figures_of, reference_figures
from config.duration import byte_count
from config.run.collective import Collective
from engine.agent.judge.output_checks import Judge
from engine.contract.head_events import GateJudged
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.plan.cases import binary_size
from engine.plan.launch_plan import launch_plan
from tests.engine.agent.judge.test_numbers import DONE, FLAGS
from tests.engine.bare_events import printed
from tests.engine.conftest import make_inventory
from tests.engine.plan.test_modes import run_of
from tests.golden import ROOT

MARK = "; CPU stand-in: says nothing of a GPU"


def planned(kind: str = "p5.48xlarge", nodes: int = 2, **fields: Any) -> LaunchPlan:
    run = run_of(type="nccl-tests", nodes=nodes, **fields)
    inventory = make_inventory(nodes).model_copy(update={"instance_type": kind})
    return launch_plan(run, inventory, "job-000001")


def gate(busbw: str = ">= 380", at: str = "8G", **fields: Any) -> dict[str, Any]:
    return {"all_reduce": {"busbw": busbw, "at": at, **fields}}


def row(size: int, busbw: float, count: int | None = None) -> str:
    elements = size // 4 if count is None else count
    return f" {size} {elements} float sum -1 9.9 1.0 {busbw} 0 9.9 1.0 {busbw + 1} 0"


def judged(
    plan: LaunchPlan, *tables: list[str], verdict: Verdict = DONE, stand_in: bool = False
) -> tuple[list[str], Verdict]:
    """What is said of gates when each case prints one of the tables, and the run's verdict."""
    assert plan.sweep is not None
    judge = Judge(replace(plan, sweep=replace(plan.sweep, is_stand_in=stand_in)))
    heard = []
    for number, rows in enumerate(tables, 1):
        for text in (f"# gpuctl: case {number} of {len(tables)}: x", FLAGS.format(8, 8, 1), *rows):
            heard += judge.hear(printed(text))
    more, verdict = judge.end(verdict)
    return [
        f"{one.level}: {one.text}" for one in (*heard, *more) if isinstance(one, GateJudged)
    ], verdict


def gates(plan: LaunchPlan) -> list[tuple[str, tuple[int, ...], float]]:
    assert plan.sweep is not None
    return [(one.title, one.cases, one.busbw) for one in plan.sweep.gates]


def test_a_gate_of_the_run_file_is_of_every_case_that_measures_its_size() -> None:
    plan = planned(
        collectives=("all_reduce", "all_gather"),
        sizes=("1G", "8G"),
        sweep={"NCCL_ALGO": ("Ring", "Tree")},
        repeat=2,
        expect=gate(">=380.5"),
    )
    assert gates(plan) == [
        ("all_reduce 8 GiB, NCCL_ALGO=Ring", (3, 4), 380.5),
        ("all_reduce 8 GiB, NCCL_ALGO=Tree", (7, 8), 380.5),
    ]


def test_a_gate_of_a_scope_is_of_that_scope_alone() -> None:
    fields: dict[str, Any] = {"sizes": ("8G",), "scopes": ("intra", "inter")}
    assert gates(planned(expect=gate(scope="inter"), **fields)) == [
        ("all_reduce 8 GiB, one GPU per node", (3,), 380.0)
    ]
    assert [one[1] for one in gates(planned(expect=gate(scope="intra"), **fields))] == [(1,), (2,)]


def test_a_gate_within_a_range_is_judged_at_its_size() -> None:
    plan = planned(min_bytes="1M", max_bytes="4M", expect=gate(at="2M"))
    rows = [row(size << 20, busbw) for size, busbw in ((1, 10.0), (2, 400.0), (4, 20.0))]
    text = "gate reached: all_reduce 2 MiB: busbw 400.00 GB/s, expected >= 380 GB/s (run file)"
    assert judged(plan, rows) == ([f"proof: {text}"], DONE)


def test_a_missed_gate_fails_the_run_with_both_figures_and_the_source() -> None:
    plan = planned(sizes=("8G",), expect=gate())
    text = "gate missed: all_reduce 8 GiB: busbw 312.40 GB/s, expected >= 380 GB/s (run file)"
    rows = [row(8 << 30, 312.4)]
    assert judged(plan, rows) == ([f"fault: {text}"], Verdict("failed", 1, 0, text))
    marked = text + MARK
    assert judged(plan, rows, stand_in=True)[1] == Verdict("failed", 1, 0, marked)
    warned = planned(sizes=("8G",), expect=gate(), verify="warn")
    assert judged(warned, rows) == ([f"warning: {text}"], DONE)
    judge = Judge(plan)
    texts = ["# gpuctl: case 1 of 1: x", FLAGS.format(8, 8, 1), *rows]
    (verdict,) = [event for text in texts for event in judge.hear(printed(text))]
    assert isinstance(verdict, GateJudged)
    assert (verdict.cases, verdict.busbw, verdict.expected, verdict.source) == (
        (1,), 312.4, 380.0, "run file",
    )  # fmt: skip


def test_the_bandwidth_itself_is_enough() -> None:
    plan = planned(sizes=("8G",), expect=gate())
    assert judged(plan, [row(8 << 30, 380.0)])[1] == DONE


@pytest.mark.parametrize(
    ("figures", "passed", "median"),
    [((379.0, 380.0, 100.0), False, "379.00"), ((379.0, 390.0, 381.0), True, "381.00")],
)
def test_of_several_repetitions_the_median_is_judged(
    figures: tuple[float, ...], passed: bool, median: str
) -> None:
    plan = planned(sizes=("8G",), repeat=3, expect=gate())
    ((text,), verdict) = judged(plan, *([row(8 << 30, one)] for one in figures))
    assert (verdict == DONE) is passed
    assert f": all_reduce 8 GiB: busbw {median} GB/s (median of 3), expected >= 380 GB/s" in text


def test_of_two_repetitions_the_median_is_between() -> None:
    plan = planned(sizes=("8G",), repeat=2, expect=gate())
    ((text,), _) = judged(plan, [row(8 << 30, 379.0)], [row(8 << 30, 382.0)])
    assert text.startswith("proof: gate reached: all_reduce 8 GiB: busbw 380.50 GB/s (median of 2)")


def test_a_size_without_a_figure_misses_its_gate_where_the_job_was_done() -> None:
    plan = planned(sizes=("8G",), expect=gate())
    text = "gate missed: all_reduce 8 GiB: not measured, expected >= 380 GB/s (run file)"
    assert judged(plan, [row(4 << 30, 500.0)]) == (
        [f"fault: {text}"],
        Verdict("failed", 1, 0, text),
    )
    failed = Verdict("failed", 3, 1, "node1 exited with 3", is_jobs_own=True)
    assert judged(plan, verdict=failed) == ([], failed)


def test_a_size_that_is_rounded_down_to_whole_elements_is_that_size() -> None:
    plan = planned(sizes=("1M",), expect=gate(at="1M"))
    assert judged(plan, [row(1048560, 400.0, count=87380)])[1] == DONE


def test_the_job_s_own_failure_stays_and_names_the_gate() -> None:
    plan = planned(sizes=("8G",), expect=gate())
    failed = Verdict("failed", 3, 1, "node1 exited with 3", is_jobs_own=True)
    reason = judged(plan, [row(8 << 30, 1.0)], verdict=failed)[1].reason
    assert reason.startswith("node1 exited with 3; gate missed: all_reduce 8 GiB: busbw 1.00 GB/s")


NCCL_TESTS = (
    "https://github.com/awslabs/awsome-distributed-ai/blob/main/micro-benchmarks/nccl-tests/"
    "README.md"
)


def test_the_reference_is_a_share_of_the_public_figure_with_its_source() -> None:
    plan = planned(sizes=("2G", "8G", "16G"), expect="reference")
    assert plan.warnings == ()
    assert [(title, cases, round(busbw, 3)) for title, cases, busbw in gates(plan)] == [
        ("all_reduce 2 GiB", (1,), 377.145),
        ("all_reduce 16 GiB", (3,), 414.035),
    ]
    ((text, *_), _) = judged(plan, [row(2 << 30, 300.0)])
    assert text == (
        "fault: gate missed: all_reduce 2 GiB: busbw 300.00 GB/s, expected >= 377.145 GB/s"
        f" (85% of 443.7 GB/s, {NCCL_TESTS}, 2026-11-20)"
    )


def test_a_node_alone_is_compared_with_one_node() -> None:
    plan = planned(sizes=("16G",), scopes=("intra",), expect="reference")
    assert [(cases, round(busbw, 3)) for _, cases, busbw in gates(plan)] == [
        ((1,), 410.635),
        ((2,), 410.635),
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "warning"),
    [
        ("g6e.48xlarge", {}, "all_reduce on 2 x g6e.48xlarge: no public figure is known"),
        (
            "p5.48xlarge",
            {"collectives": ("all_gather",)},
            "all_gather on 2 x p5.48xlarge: no public figure is known",
        ),
        (
            "p5.48xlarge",
            {"scopes": ("inter",)},
            "all_reduce, one GPU per node on 2 x p5.48xlarge: no public figure is known",
        ),
        (
            "p5.48xlarge",
            {"dtypes": ("half",), "gpus_per_node": (4,)},
            "all_reduce, half, 4 GPUs per node on 2 x p5.48xlarge: no public figure is known",
        ),
        (
            "p5.48xlarge",
            {"sizes": ("1M", "1G")},
            "all_reduce on 2 x p5.48xlarge: the public figures are of 2 GiB and 16 GiB, which this"
            " run does not measure",
        ),
    ],
)
def test_what_has_no_public_figure_is_said_once(
    kind: str, fields: dict[str, Any], warning: str
) -> None:
    plan = planned(kind, **{"sizes": ("2G", "16G"), **fields}, expect="reference")
    assert gates(plan) == []
    assert plan.warnings == (f"`expect: reference` does not judge {warning}",)


def test_every_public_figure_is_of_a_known_type_and_has_a_source() -> None:
    for figure in reference_figures():
        assert figure.instance_type in catalogue()
        assert figure.collective in get_args(Collective)
        assert figure.source.startswith("https://github.com/")
        assert figure in figures_of(figure.instance_type, figure.nodes, figure.collective)


def test_the_documentation_has_every_public_figure() -> None:
    lines = (ROOT / "docs/do/nccl-tests.md").read_text().splitlines()
    written = {
        (kind, int(nodes), figure)
        for kind, nodes, figures in (
            [cell.strip() for cell in line.split("|")[1:-1]]
            for line in lines
            if re.match(r"\| p\w[\w-]*\.\w+ \|", line)
        )
        for figure in figures.split(", ")
    }
    assert written == {
        (one.instance_type, one.nodes, f"{one.busbw:g} at {binary_size(byte_count(one.size))}")
        for one in reference_figures()
    }
