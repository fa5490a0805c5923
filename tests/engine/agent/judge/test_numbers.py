"""Wrong numbers never pass as success: judged by what is printed, whatever the exit status."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.agent.judge.output_checks import Judge
from engine.agent.judge.table_rows import strip_prefix
from engine.agent.judge.tables import read_json
from engine.agent.node import nccl_json_files
from engine.contract.head_events import OutputJudged
from engine.contract.plan import Case, NetworkPlan, Sweep, Verify
from engine.contract.table import Facts, Timing
from engine.contract.verdict import Verdict
from tests.engine.agent.judge.test_nccl_tests import out
from tests.engine.bare_events import findings, printed
from tests.engine.bare_plans import bare_node, bare_plan
from tests.engine.conftest import LocalCluster, make_plan
from tests.engine.read_output import TablesOfOutput

FLAGS = (
    "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: 2(factor) warmup iters: 5 iters: 20"
    " agg iters: 1 validation: {} graph: 0"
)
COLUMNS = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
DONE = Verdict("done", 0, None, "the master is done")


def row(size: int, wrong: object = 0, wrong_in_place: object = 0) -> str:
    begin = f"{size:>12}  {size // 4:>12}     float     sum      -1"
    return (
        f"{begin}    51.2    0.02    0.04  {wrong:>5}    50.1    0.02    0.04  {wrong_in_place:>5}"
    )


def table(*rows: str, footer: str | None = "0 OK", checks: int = 1, most: int = 32) -> list[str]:
    lines = ["# Collective test starting: all_reduce_perf", FLAGS.format(8, most, checks), COLUMNS]
    lines += rows
    if footer:
        lines += [f"# Out of bounds values : {footer}", "# Avg bus bandwidth    : 3.5 "]
    return lines


def judged(
    lines: list[str],
    verify: Verify = "auto",
    verdict: Verdict = DONE,
) -> tuple[list[str], Verdict]:
    """What is said of the lines that node1 printed, and the verdict."""
    judge = Judge(bare_plan([bare_node(0), bare_node(1)], NetworkPlan(verify=verify)))
    events = [
        printed(line, rank=1, ends_line=number < len(lines) - 1)
        for number, line in enumerate(lines)
    ]
    heard = [one for event in events for one in judge.hear(event)]
    more, verdict = judge.end(verdict)
    return [f"{one.level}: {one.text}" for one in findings(heard + more)], verdict


GOOD = [row(8), row(16), row(32)]


def test_a_good_table_is_good() -> None:
    assert judged(table(*GOOD)) == ([], DONE)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (
            table(row(8), row(16, 3), row(32)),
            "wrong data: all_reduce on node1 has 3 wrong values at 16 bytes, out-of-place"
            " (float, sum)",
        ),
        (
            table(row(8), row(16), row(32, 0, 1), footer="1 FAILED"),
            "wrong data: all_reduce on node1 has 1 wrong value at 32 bytes, in-place (float, sum)",
        ),
        (
            table(*GOOD, footer="2 FAILED"),
            "wrong data: all_reduce on node1 ended with `Out of bounds values : 2 FAILED`",
        ),
        (
            [COLUMNS.replace("#wrong", "error"), *GOOD, "# Out of bounds values : 4 FAILED"],
            "wrong data: nccl-tests on node1 ended with `Out of bounds values : 4 FAILED`",
        ),
        (
            table(row(8), row(16), footer=None),
            "all_reduce on node1 is incomplete: it ended at 32 bytes of 32 bytes",
        ),
        (
            table(row(8), row(16)[:60], footer=None),
            "all_reduce on node1 is incomplete: it ended at 16 bytes of 32 bytes",
        ),
        (
            [*table(*GOOD)[:-1], "# Avg bus bandwidth    : 3.5 FAILED"],
            "all_reduce on node1: its average bus bandwidth of 3.5 GB/s is below NCCL_TESTS_MIN_BW",
        ),
        (
            ["node0: Test CUDA failure common.cu:1292 'out of memory'"],
            "node0: Test CUDA failure common.cu:1292 'out of memory'",
        ),
        (
            ["ip-10-0-0-0: Test NCCL failure common.cu:958 'unhandled system error / '"],
            "node0: Test NCCL failure common.cu:958 'unhandled system error / '",
        ),
    ],
)
def test_what_fails_a_run_that_ended_well(lines: list[str], text: str) -> None:
    rank = int("on node1" in text)
    assert judged(lines) == ([f"fault: {text}"], Verdict("failed", 1, rank, text))
    assert judged(lines, "require")[1].status == "failed"
    assert judged(lines, "warn") == ([f"warning: {text}"], DONE)
    assert judged(lines, "off") == ([], DONE)


def test_a_last_row_without_a_newline_counts() -> None:
    assert judged([*table(row(8), footer=None, most=8), row(8, 7)])[1].exit_code == 1


def test_what_was_not_checked_is_not_wrong() -> None:
    assert judged(table(*(row(size, "N/A", "N/A") for size in (8, 16, 32)), checks=0)) == ([], DONE)
    # Up to 2.13.1 a table without checks has zeros.
    parser = TablesOfOutput()
    for line in table(*GOOD, checks=0):
        parser.read(out(line))
    assert not parser.tables[0].facts.is_checked


def test_wrong_data_are_the_reason_whatever_the_jobs_status_was() -> None:
    lines = table(row(8, 1), row(16, 1), row(32), footer="2 FAILED")
    failed = Verdict("failed", 3, 1, "node1 exited with 3", is_jobs_own=True)
    wrong = (
        "wrong data: all_reduce on node1 has 1 wrong value at 8 bytes, out-of-place (float, sum)"
        " (and 1 more)"
    )
    verdict = judged(lines, verdict=failed)[1]
    assert (verdict.exit_code, verdict.reason) == (1, f"{wrong}; node1 exited with 3")
    failure = "node1: Test CUDA failure common.cu:1 'x'"
    verdict = judged([failure], verdict=failed)[1]
    assert (verdict.exit_code, verdict.reason) == (3, f"{failure}; node1 exited with 3")
    lost = Verdict("failed", 125, 0, "node0 was lost")
    verdict = judged(lines, verdict=lost)[1]
    assert (verdict.exit_code, verdict.reason) == (125, f"node0 was lost; {wrong}")


def test_lost_rows_are_told_and_fail_nothing() -> None:
    told, verdict = judged(table(row(8), row(16)))
    assert verdict == DONE
    assert told == [
        "warning: all_reduce on node1: 1 row could not be read, other output went through them"
    ]
    assert judged(table(row(8)))[0] == [
        "warning: all_reduce on node1: 2 rows could not be read, other output went through them"
    ]


@pytest.mark.parametrize("lines", [table(row(8)), [FLAGS.format(8, 8, 1)] * 2])
def test_a_warning_about_a_table_is_of_the_node_that_printed_it(lines: list[str]) -> None:
    judge = Judge(bare_plan([bare_node(0), bare_node(1)]))
    heard = [event for line in lines for event in judge.hear(printed(line, rank=1))]
    (warning,) = findings(heard + judge.end(DONE)[0])
    assert (warning.level, warning.rank) == ("warning", 1)


def test_the_case_is_named_where_a_run_has_several() -> None:
    cases = tuple(Case(number, "a title", "all_reduce", 8, 8) for number in (1, 2))
    for known, place in ((cases, ", case 2 of 2"), (cases[:1], "")):
        judge = Judge(replace(bare_plan([bare_node(0)]), sweep=Sweep(known)))
        judge.hear(printed("# gpuctl: case 2 of 2: all_reduce"))
        (wrong,) = findings(judge.hear(printed(row(8, 1))))
        assert wrong.text == (
            f"wrong data: nccl-tests on node0{place} has 1 wrong value at 8 bytes, out-of-place"
            " (float, sum)"
        )


def test_a_row_put_together_again_is_not_wrong_where_the_footer_denies_it() -> None:
    torn = [row(16)[:70] + "node0:1:2 [0] NCCL INFO of", row(16, 0, 5)[70:]]
    assert judged(table(row(8), *torn, row(32))) == ([], DONE)
    assert judged(table(row(8), *torn, row(32), footer="1 FAILED"))[1].reason.startswith(
        "wrong data"
    )


def test_tables_are_told_apart_and_each_is_judged() -> None:
    gather = [line.replace("all_reduce", "all_gather") for line in table(row(8), footer=None)]
    told, _ = judged([*table(*GOOD), *gather, *table(*GOOD)])
    assert told == ["fault: all_gather on node1 is incomplete: it ended at 16 bytes of 32 bytes"]
    both = [FLAGS.format(8, 8, 1), FLAGS.format(8, 8, 1), row(8), row(8)]
    assert judged(both)[0] == [
        "warning: 2 tables of nccl-tests on node1 were printed at once: each of these programs"
        " tested alone, without the others; build nccl-tests with MPI=1"
    ]


def test_sizes_beyond_the_memory_are_not_missed() -> None:
    lines = table(row(8), footer=None)
    lines.insert(2, "# Reducing maxBytes to 8 due to memory limitation")
    assert judged(lines) == ([], DONE)
    skipped = table(row(8), "# size 16 skipped: a buffer", "# size 32 skipped: a buffer")
    assert judged(skipped) == ([], DONE)


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",  # Open MPI --tag-output
        "[1,0]<stdout>: ",
        "[1,0][ip-10-0-0-5:4100]<stdout>:",  # --tag-output-fullname
        "[prterun-ip-10-0-0-5-41@1,0]<stdout>: ",  # Open MPI 5
        "[0]<stdout>:",  # horovodrun
        "Fri Nov 20 19:20:21 2026<stdout>:",  # --timestamp-output
        "Fri Nov 20 19:20:21 2026[1,0]<stdout>:",
        "Fri Nov 20 19:20:21 2026[0]<stdout>:",
        "2026-11-20T19:20:21.123Z ",
        "[0] ",  # Hydra -prepend-rank
        " 0: ",  # srun --label
        "[default0]:",  # torchrun --tee
        "10.0.0.5: ",  # pdsh, of DeepSpeed
        "node1: ",
        "(task pid=4100, ip=10.0.0.5) ",  # Ray
        "\x1b[36m(task pid=4100)\x1b[0m ",
    ],
)
def test_prefixes_of_launchers_hide_nothing(prefix: str) -> None:
    lines = table(row(8), row(16, 2), row(32), footer="1 FAILED")
    _, verdict = judged([prefix + line for line in lines])
    assert verdict.reason.endswith("2 wrong values at 16 bytes, out-of-place (float, sum)")
    assert strip_prefix(prefix + lines[0]) == lines[0]
    _, verdict = judged([prefix + "node0: Test CUDA failure common.cu:1 'x'"])
    assert verdict.reason == "node0: Test CUDA failure common.cu:1 'x'"


def test_facts_of_a_table() -> None:
    parser = TablesOfOutput()
    for line in (
        "# nccl-tests version 2.19.6 nccl-headers=22807 nccl-library=22809",
        "# Collective test starting: all_gather_perf",
        f"{FLAGS.format(8, 8, 1)} unalign: 0",
        "#  Rank  0 Group  0 Pid   4100 on ip-10-0-0-5 device  3 [0000:53:00] NVIDIA H100 80GB",
        "node0:1:2 [0] NCCL INFO cudaDriverVersion 13000",
        "node0:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.17.1",
        row(8),
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 3.5 ",
    ):
        parser.read(out(line))
    facts = parser.tables[0].facts
    (rank,) = facts.ranks
    assert (rank.host, rank.device, rank.pci) == ("ip-10-0-0-5", 3, "0000:53:00")
    assert facts.flags["iterations"] == 20
    assert replace(facts, flags={}, ranks=()) == Facts(
        rank=0,
        collective="all_gather",
        nccl_tests="2.19.6",
        nccl="2.28.9",
        plugin="aws-ofi-nccl 1.17.1",
        driver="13.0",
        out_of_bounds=0,
        average_busbw=3.5,
    )


def half(wrong: float | None) -> dict[str, Any]:
    return {"time": 51.25, "alg_bw": 0.02, "bus_bw": 0.04, "nwrong": wrong}


def document(wrong: float = 0, typo: str = "") -> dict[str, Any]:
    """What `-J` writes (src/util.cu of nccl-tests 2.19.6; 2.17.3 with its typos)."""
    config = {
        **{"nthreads": 1, "ngpus": 1, "minimum_bytes": 8, "maximum_bytes": 16, "step_factor": 2},
        **{"warmup_iters": 5, "iterations": 20, "aggregated_iterations": 1, "validation": 1},
        **{"graph": 0, "blocking_collectives": "false", "parallel_init": "false"},
        "devices": [
            {"rank": 0, "group": 0, "pid": 41, "hostname": "ip-10-0-0-5", "device": 0}
            | {"device_hex": "0000:10:1c", "device_info": "NVIDIA H100"}
        ],
    }
    rows = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"}
        | {"out_of_place": half(0.0), "in_place": half(wrong if size == 16 else None)}
        | {"out_of_place_per_iter": {"min_us": 1.0, "max_us": 2.0, "p99_us": 2.0, "cv_pct": 3.5}}
        for size in (8, 16)
    ]
    rows[0]["out_of_place_per_iter"]["times_us"] = [1.0] * 20  # type: ignore[index]
    return {
        **{"version": 3, "start_time": "2026-11-20 19:20:21", "nccl_version": 22809},
        **{"args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "8"]},
        **{"env": ["HF_TOKEN=very-secret"], "config": config, "results": rows},
        "out_of_bounds": {"count": int(wrong > 0), "okay": "true"},
        f"average_bus_bandwid{typo}th": {f"bandwid{typo}th": 3.5, "okay": "unchecked"},
    }


@pytest.mark.parametrize("typo", ["", "i"])
def test_nccl_tests_own_json_is_read(typo: str) -> None:
    told = read_json(document(typo=typo), 0)
    assert (told.collective, told.nccl, told.average_busbw) == ("all_reduce", "2.28.9", 3.5)
    assert [row.size for row in told.rows] == [8, 16]
    own, in_place = told.rows[1].out_of_place, told.rows[0].in_place
    assert own is not None
    assert in_place is not None
    assert own == Timing(51.25, 0.02, 0.04, 0, iterations=(1.0, 2.0, 2.0, 3.5))
    assert in_place.wrong is None
    assert [row.count for row in told.rows] == [2, 4]
    assert told.ranks[0].pci == "0000:10:1c"


def test_a_time_of_the_cpu_stands_for_one_that_is_not_there() -> None:
    """nccl-tests writes `cpu_time` with `-C 1` (src/util.cu of 2.17.3 to 2.19.6)."""
    written = document()
    for result in written["results"]:
        result["out_of_place"]["cpu_time"] = result["out_of_place"].pop("time") + 1
    own = read_json(written, 0).rows[0].out_of_place
    assert own is not None
    assert own.time_us == 52.25


def test_json_is_laid_over_the_text_and_finds_rows_that_were_lost() -> None:
    parser = TablesOfOutput()
    for line in table(row(8), footer=None, most=16):
        parser.read(out(line))
    (number,) = parser.read(written(document()))
    found = parser.table(number)
    assert number == 0
    assert found.facts.from_json
    assert (found.facts.ended_at, found.facts.out_of_bounds) == (None, 0)
    assert [row.size for row in found.rows] == [8, 16]
    assert parser.read(written({"results": 1})) == ()  # of a version to come


def written(value: dict[str, Any]) -> Any:
    from engine.contract.worker_events import TableWritten

    return TableWritten(time=1, rank=0, document=value)


def test_a_document_comes_back_without_the_environment(tmp_path: Path) -> None:
    (tmp_path / "nccl-tests-7-all_reduce_perf.json").write_text(json.dumps(document()))
    (tmp_path / "nccl-tests-01-broken.json").write_text('{"env": [')
    (tmp_path / "hostfile").write_text("node0")
    ((case, kept),) = nccl_json_files.collect(tmp_path)
    assert case == 7
    assert "very-secret" not in json.dumps(kept)
    assert "times_us" not in json.dumps(kept)
    assert [path.name for path in tmp_path.iterdir()] == ["hostfile"]


SAY = "cat <<'EOF' | tee /dev/null\n{}\nEOF"


def test_a_run_whose_pipe_ends_well_fails_of_what_it_printed(cluster: LocalCluster) -> None:
    lines = "\n".join(table(row(8), row(16, 1), row(32)))
    plan = make_plan(nodes=1, commands=(SAY.format(lines), "(exit 3) | cat"))
    verdict = cluster.execute(plan)
    text = (
        "wrong data: all_reduce on node0 has 1 wrong value at 16 bytes, out-of-place (float, sum)"
    )
    assert (verdict.status, verdict.exit_code, verdict.reason) == ("failed", 1, text)
    judgements = [event for event in cluster.events() if isinstance(event, OutputJudged)]
    # What is printed and how a pipe ended come on two ways: either may be first.
    assert {(event.level, event.text) for event in judgements} == {
        ("fault", text),
        (
            "warning",
            "node0: in a pipe of entry 2 of the commands, part 1 of 2 ended with 3, and the pipe"
            " with 0; `set -o pipefail` before it makes that a failure",
        ),
    }


def test_json_that_a_program_left_is_judged_too(cluster: LocalCluster) -> None:
    text = json.dumps(document(wrong=1.0))
    path = f"{cluster.folder}/node0/nccl-tests-7-all_reduce_perf.json"
    plan = make_plan(nodes=1, commands=(f"cat > {path} <<'EOF'\n{text}\nEOF",))
    verdict = cluster.execute(plan)
    assert verdict.reason == (
        "wrong data: all_reduce on node0 has 1 wrong value at 16 bytes, in-place (float, sum)"
    )


def test_verify_warn_shows_and_lets_it_pass(cluster: LocalCluster) -> None:
    lines = "\n".join(table(row(8, 1), row(16), row(32)))
    plan = make_plan(nodes=1, commands=(SAY.format(lines),))
    verdict = cluster.execute(replace(plan, network=NetworkPlan(verify="warn")))
    assert verdict.status == "done"
    assert [e.level for e in cluster.events() if isinstance(e, OutputJudged)] == ["warning"]
