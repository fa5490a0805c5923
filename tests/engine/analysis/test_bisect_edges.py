"""A bisect's plan, readings and verdict, with exact figures at the edges of what counts as slow."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.errors import RunError
from engine.agent.judge.output_reader import OutputReader
from engine.analysis.bisect.launch import RoundReader, run_file
from engine.analysis.bisect.report import (
    Bisect,
    describe,
    failure_lines,
    find,
    keep,
    ring_line,
    verdict_line,
    verdict_lines,
)
from engine.analysis.bisect.rounds import Round, Trial, count_runs, first_rounds, last_round
from engine.analysis.bisect.verdict import (
    Measurement,
    SpeedEvidence,
    Suspect,
    confirmed,
    next_round,
    node_speeds,
    suspects,
)
from engine.contract.head_events import RunFinished
from engine.contract.worker_events import Output, Stream
from engine.record.history import RunRecord
from tests.engine.bare_plans import bare_node, bare_plan

NAMES = ("a", "b", "c", "d")


def broadcast(sender: int, receiver: int, gbps: float = 40, error: str = "") -> Measurement:
    trial = Trial(collective="broadcast", nodes=(sender, receiver))
    return Measurement(trial=trial, gbps=gbps, error=error)


def ring(*nodes: int, gbps: float = 40) -> Measurement:
    return Measurement(trial=Trial(collective="all_reduce", nodes=nodes), gbps=gbps)


def pairs_of(nodes: int, **slow: float) -> list[Measurement]:
    """All pairs at 40 GB/s; `slow` has others by their nodes: `n01` from 0 to 1, `n2` of 2."""
    return [
        broadcast(
            one,
            two,
            slow.get(f"n{one}{two}", min(slow.get(f"n{one}", 40), slow.get(f"n{two}", 40))),
        )
        for one in range(nodes)
        for two in range(nodes)
        if one != two
    ]


def lanes(a_round: Round) -> list[list[list[tuple[int, ...]]]]:
    return [[[trial.nodes for trial in lane] for lane in step] for step in a_round.steps]


def both(one: int, two: int) -> list[tuple[int, int]]:
    return [(one, two), (two, one)]


def test_five_nodes_are_halved_into_three_and_two() -> None:
    alone, halves, quarters, rest = first_rounds(5, 2)
    assert [one.title for one in (alone, halves, quarters, rest)] == ["alone", *["pairs"] * 3]
    assert lanes(alone) == [[[(node,)] for node in range(5)]]
    assert {trial.collective for trial in alone.trials} == {"all_reduce"}
    assert {trial.collective for trial in halves.trials} == {"broadcast"}
    assert lanes(halves) == [
        [both(0, 3), both(1, 4)],
        [both(0, 4), both(2, 3)],
        [both(1, 3), both(2, 4)],
    ]
    assert lanes(quarters) == [[both(0, 2), both(3, 4)], [both(1, 2)]]
    assert lanes(rest) == [[both(0, 1)]]
    assert (count_runs(5, 2), count_runs(5, 1)) == (5, 4)
    assert first_rounds(5, 1) == (halves, quarters, rest)


def test_the_last_round_has_the_rings_and_measures_suspects_twice() -> None:
    last = last_round(4, (1, 3), ((1, 3), (0, 2)))
    assert last.title == "rings"
    rings = [[[(0, 1, 2, 3)]], [[(0, 1, 2)]]]
    assert lanes(last) == [*rings, *[[both(1, 3)]] * 2, *[[both(0, 2)]] * 2]
    assert [trial.collective for trial in last.trials[:3]] == ["all_reduce"] * 2 + ["broadcast"]
    assert lanes(last_round(4, (), ())) == [[[(0, 1, 2, 3)]]]
    assert lanes(last_round(2, (0,), ())) == [[[(0, 1)]]]  # one node is no ring
    assert lanes(last_round(3, (0,), ())) == [[[(0, 1, 2)]], [[(1, 2)]]]


def test_a_round_takes_the_time_of_its_longest_lanes() -> None:
    one = Trial(collective="all_reduce", nodes=(0,))
    a_round = Round(title="pairs", steps=(((one,), (one, one, one)), ((one,),)))
    assert (a_round.seconds, a_round.most_seconds) == (8 + 4 * 6, 120 + 4 * 70)
    assert len(a_round.trials) == 5


@pytest.mark.parametrize(
    ("speed", "named"),
    [(32.0, False), (31.9, True)],  # 20 % below is not far, more is
)
def test_a_node_is_slow_beyond_a_fifth(speed: float, named: bool) -> None:
    found = suspects(pairs_of(4, n1=speed))
    assert [one.nodes for one in found] == ([(1,)] if named else [])


@pytest.mark.parametrize(("speed", "named"), [(32.0, False), (31.9, True)])
def test_a_pair_is_slow_beyond_a_fifth_in_one_direction(speed: float, named: bool) -> None:
    found = suspects(pairs_of(4, n03=speed))
    assert [one.nodes for one in found] == ([(0, 3)] if named else [])
    for one in found:
        assert one.evidence == (SpeedEvidence(how="pair", nodes=(0, 3), gbps=speed, usual=40),)


WAYS = [
    (0, 1),
    (1, 0),
    (2, 3),
    (3, 2),
    (0, 2),
    (0, 3),
    (1, 2),
    (1, 3),
    (2, 0),
    (2, 1),
    (3, 0),
    (3, 1),
]


@pytest.mark.parametrize(
    ("others", "last", "named"),
    [
        # Parts of 40: most are 1, so the median deviation is 0, and a fifth counts.
        ([40, 40, 40, 36, 36, 36, 36], 32, False),
        ([40, 40, 40, 36, 36, 36, 36], 31.9, True),
        # Median 0.9, median deviation a ninth of it: a third counts.
        ([36, 36, 36, 36, 32, 32, 32], 27, False),
        ([36, 36, 36, 36, 32, 32, 32], 26.6, True),
        # Median 0.5, and deviations as large: three quarters count, and no more.
        ([20, 20, 20, 20, 11, 11, 11], 10, False),
        ([20, 20, 20, 20, 11, 11, 11], 9.9, True),
    ],
)
def test_noise_of_the_pairs_widens_what_is_far(
    others: list[float], last: float, named: bool
) -> None:
    """Every node reaches 40 GB/s with one partner, so no node is slow."""
    speeds = [40, 40, 40, 40, *others, last]
    found = suspects([broadcast(*way, speed) for way, speed in zip(WAYS, speeds, strict=True)])
    assert [one.nodes for one in found] == ([(1, 3)] if named else [])


def test_speeds_are_the_best_with_any_partner_and_compare_from_three_nodes_on() -> None:
    measured = [broadcast(0, 1, 10), broadcast(0, 2, 30), broadcast(1, 0, 20), ring(0, gbps=7)]
    measured += [ring(0, gbps=9), ring(0, 1, 2, gbps=90)]
    assert node_speeds(measured) == {
        "alone": {0: 9},
        "sender": {0: 30, 1: 20},
        "receiver": {0: 20, 1: 10, 2: 30},
    }
    assert node_speeds(measured[:2]) == {"alone": {}, "sender": {}, "receiver": {}}


def test_three_suspects_are_measured_again_and_the_first_good_node_with_them() -> None:
    nodes, first = 8, first_rounds(8, 1)
    measured = pairs_of(nodes, n0=4, n1=5, n2=6)
    last = next_round(nodes, 1, len(first), measured)
    assert last == last_round(nodes, (0,), ((0, 3), (1, 3), (2, 3)))
    measured = [ring(node, gbps=10 * node) for node in range(4)] + pairs_of(
        9, n01=1, n23=2, n45=3, n67=4
    )
    found = suspects(measured[4:])
    assert [one.nodes for one in found] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    last = next_round(9, 1, len(first_rounds(9, 1)), measured[4:])
    assert last == last_round(9, (0, 1), ((0, 1), (2, 3), (4, 5)))
    assert next_round(9, 1, len(first_rounds(9, 1)) + 1, measured) is None
    assert next_round(9, 1, 1, []) == first_rounds(9, 1)[1]


def test_a_node_that_is_slow_alone_is_measured_with_a_good_one() -> None:
    measured = [ring(0, gbps=100), *(ring(node, gbps=400) for node in (1, 2, 3)), *pairs_of(4)]
    assert next_round(4, 8, 3, measured) == last_round(4, (0,), ((0, 1),))
    both_slow = [ring(0, gbps=100), ring(1, gbps=300), ring(2, gbps=300)]
    assert [one.nodes for one in suspects(both_slow)] == [(0,)]
    nobody = [broadcast(*nodes, 0, "dead") for nodes in ((0, 1), (1, 0), (0, 2), (2, 0))]
    assert next_round(3, 1, 2, nobody) == last_round(3, (), ())


def test_a_pair_counts_only_if_it_was_measured_again_and_is_still_slow() -> None:
    measured = pairs_of(4, n03=10)
    assert [one.nodes for one in suspects(measured)] == [(0, 3)]
    assert confirmed(measured) == ()
    again = [*measured, broadcast(0, 3, 11), broadcast(3, 0, 40)]
    (found,) = confirmed(again)
    assert (found.nodes, found.evidence[0].gbps) == ((0, 3), 11)
    assert confirmed([*measured, broadcast(0, 3, 39)]) == ()


def test_the_shortfall_of_a_suspect_is_its_largest() -> None:
    half = SpeedEvidence(how="sender", nodes=(0,), gbps=20, usual=40)
    third = SpeedEvidence(how="receiver", nodes=(0,), gbps=30, usual=40)
    assert (half.shortfall, third.shortfall) == (0.5, 0.25)
    assert Suspect(nodes=(0,), evidence=(third, half)).shortfall == 0.5
    assert SpeedEvidence(how="alone", nodes=(0,), gbps=0, usual=0).shortfall == 0


def test_lines_name_who_was_measured_and_how() -> None:
    def suspect(*hows: str) -> Suspect:
        ways = tuple(SpeedEvidence(how=how, nodes=(2,), gbps=9.876, usual=40) for how in hows)  # type: ignore[arg-type]
        return Suspect(nodes=(2,), evidence=ways)

    speeds = "9.88 of 40 GB/s"
    assert describe(suspect("receiver"), NAMES) == (
        f"c: 75 % below the median of 4 as receiver ({speeds})"
    )
    assert describe(suspect("alone", "sender"), NAMES) == (
        f"c: 75 % below the median of 4 alone (NVLink) and as sender ({speeds}, {speeds})"
    )
    measured = [ring(0, 1, 2, 3, gbps=9.876), ring(0, 1, 3, gbps=40.04), broadcast(0, 1, 99)]
    assert ring_line(NAMES, measured) == ("the ring of all 4 nodes: 9.88 GB/s; without c: 40 GB/s")
    assert ring_line(NAMES, []) == "the ring of all 4 nodes: 0 GB/s"
    assert ring_line(NAMES[:3], [ring(0, gbps=7), ring(0, 1, 2)]) == (
        "the ring of all 3 nodes: 40 GB/s"
    )
    two = [ring(0, gbps=400), ring(1, gbps=390.06)]
    assert verdict_line(NAMES[:2], (), [*two, broadcast(0, 1)]) == (
        "no node and no pair is slow: 2 nodes, alone (NVLink) 390 to 400 GB/s"
    )


def test_three_nodes_without_nvlink_are_compared() -> None:
    assert verdict_line(NAMES[:3], (), pairs_of(3)) == (
        "no node and no pair is slow: 3 nodes, as sender 40 to 40 GB/s, as receiver 40 to 40 GB/s"
    )
    assert verdict_line(NAMES[:2], (), pairs_of(2)) == (
        "nothing to compare: two nodes are one pair, and it takes three to name a slow one"
    )


def a_bisect(measured: list[Measurement], *runs: str) -> Bisect:
    found = suspects(measured)
    return Bisect(
        cluster="fleet", began=datetime(2026, 11, 22, 20, 1, 2, tzinfo=UTC), nodes=NAMES,
        planned_runs=3, runs=runs, measured=tuple(measured), suspects=found,
        verdict=verdict_line(NAMES, found, measured),
    )  # fmt: skip


def test_all_suspects_the_rings_and_failures_have_a_line() -> None:
    measured = [*pairs_of(4, n1=10), broadcast(2, 3, 0, "no route"), ring(0, 1, 2, 3, gbps=8)]
    measured = [one for one in measured if one.trial.nodes != (2, 3) or one.error]
    bisect = a_bisect(measured, "bisect-000001")
    assert verdict_lines(bisect) == [
        "c and d: 100 % below what both reach with others (c to d 0 of 40 GB/s)",
        "also b: 75 % below the median of 4 as sender and receiver (10 of 40 GB/s, 10 of 40 GB/s)",
        "the ring of all 4 nodes: 8 GB/s",
    ]
    assert failure_lines(NAMES, measured) == ["broadcast on c and d failed: no route"]


def record(run_id: str, name: str = "bisect") -> RunRecord:
    return RunRecord(
        run_id=run_id, name=name, cluster="fleet", nodes=4, on_stop="keep", status="done",
        exit_code=0, first_failed_rank=None, reason="", started=datetime.now(UTC), ended=None,
        cost_usd=None,
    )  # fmt: skip


def test_a_bisect_is_found_by_any_of_its_runs(tmp_path: Path) -> None:
    assert find(record("bisect-000001"), tmp_path) is None
    older = a_bisect(pairs_of(4, n1=10), "bisect-000001", "bisect-000002")
    newer = older.model_copy(
        update={"began": datetime(2026, 11, 23, tzinfo=UTC), "runs": ("bisect-000003",)}
    )
    path = keep(older, tmp_path)
    assert path == tmp_path / "bisects/fleet-20261122-200102.json"
    assert path.read_text().endswith("}\n")
    keep(newer, tmp_path)
    assert find(record("bisect-000002"), tmp_path) == older
    assert find(record("bisect-000003"), tmp_path) == newer
    assert find(record("bisect-000004"), tmp_path) is None  # of a bisect that did not end
    assert find(record("bisect-000002", name="job"), tmp_path) is None
    path.write_text("{}")
    with pytest.raises(RunError) as error:
        find(record("bisect-000001"), tmp_path)
    assert (error.value.message, error.value.hint) == (
        f"{path} does not hold a bisect",
        "move the file away",
    )


TITLE = (
    "# nThread 1 nGpus 1 minBytes 65536 maxBytes 65536 step: 2(factor) warmup iters: 5 iters: 20"
)
PAIR = Round(title="pairs", steps=(((broadcast(0, 1).trial, broadcast(1, 0).trial),),))


def read(
    *texts: str, rank: int = 0, stream: Stream = "stdout", of: Round = PAIR
) -> list[Measurement]:
    reader, head = RoundReader(of), OutputReader(bare_plan([bare_node(0), bare_node(1)]))
    for text in texts:
        for event in head.read(Output(rank, stream, text)):
            reader.see(event)
    return reader.measured


def row(size: int, out: float | None, into: float) -> str:
    """A row, whose in-place half is alone in a table without out-of-place."""
    half = " " * 34 if out is None else f" {out} 0.00 0.00 0"
    return f"{size} {size // 4} float none 0{half} {into} 0.00 0.00 0"


def test_the_largest_size_and_the_better_half_count() -> None:
    texts = ("# gpuctl: case 2 of 2: trial 1", row(65536, 10, 1), row(131072, 200, 100))
    (found,) = read(*texts, "gpuctl-bisect: end 1 0")
    assert found.trial.nodes == (1, 0)
    assert found.gbps == pytest.approx(1.31072)
    assert found.error == ""
    for out, into, gbps in ((0, 0, 0), (10, 0, 6.5536), (None, 10, 6.5536)):
        (found,) = read(
            "# gpuctl: case 1 of 2: trial 0", row(65536, out, into), "gpuctl-bisect: end 0 0"
        )
        assert found.gbps == pytest.approx(gbps)
        assert found.error == ""
    assert read(*texts, "gpuctl-bisect: end 1 0", rank=1) == []
    assert read(*texts, "gpuctl-bisect: end 1 0", stream="stderr") == []


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        ("124", "Killed", "no result within 60 s"),
        ("137", "", "no result within 60 s"),
        ("1", " no route \n ", "no route"),
        ("1", "", "exit code 1"),
        ("0", "", "exit code 0"),  # a program without a table
    ],
)
def test_a_trial_that_failed_says_why(status: str, said: str, error: str) -> None:
    begin, end = "# gpuctl: case 1 of 2: trial 0", f"gpuctl-bisect: end 0 {status}"
    texts = ("the last line of an earlier trial", begin, *said.split("\n"), end)
    assert read(*texts) == [broadcast(0, 1, 0, error)]


def test_a_failed_trial_with_rows_is_a_failure_and_the_next_one_begins_anew() -> None:
    texts = ("# gpuctl: case 1 of 2: trial 0", row(65536, 10, 10), "gpuctl-bisect: end 0 1")
    found = read(*texts, "# gpuctl: case 2 of 2: trial 1", "gpuctl-bisect: end 1 0")
    assert [one.gbps for one in found] == [0, 0]
    assert found[1].error == "exit code 0"


def test_the_bandwidth_of_one_rank_is_that_of_its_data() -> None:
    alone = Round(title="alone", steps=(((ring(0).trial,),),))
    for listed in ([], ["#  Rank  0 Group  0 Pid  1 on node0 device  0 [0x00] GPU"]):
        texts = ["# gpuctl: case 1 of 2: trial 0", TITLE, *listed, row(65536, 10, 10)]
        measured = read(*texts, "gpuctl-bisect: end 0 0", of=alone)
        assert [one.gbps for one in measured] == [pytest.approx(6.5536)]


def test_a_last_line_without_an_end_is_read_when_the_run_is_over() -> None:
    reader = RoundReader(PAIR)
    reader.see(Output(0, "stdout", "gpuctl-bisect: end 0 1", ends_line=False))
    assert reader.measured == []
    reader.see(RunFinished("done", 0, None, ""))
    assert [one.error for one in reader.measured] == ["exit code 1"]


@pytest.mark.parametrize(
    ("largest", "words"),
    [
        (256 << 20, "-b 65536 -e 268435456 -f 4096"),
        (64 << 10, "-b 65536 -e 65536 -f 2"),
        (4096, "-b 4096 -e 4096 -f 2"),
    ],
)
def test_a_round_is_a_run_of_the_head_alone(largest: int, words: str) -> None:
    run = run_file(PAIR, 4, largest)
    assert (run.name, run.nodes, run.verify, run.max_duration) == ("bisect", 4, "warn", 260)
    assert (run.startup_order, run.stop_criteria) == ("workers-first", "master-done")
    assert list(run.roles) == ["master"]
    (script,) = run.roles["master"].commands or ()
    assert f"\nwords=({words} -g 1 -n 20 -w 5 -c 1)\n" in script
    assert script.endswith(
        '(trial 0 "$broadcast" 0 1; trial 1 "$broadcast" 1 0) &\nwait\nshow 0 1\n'
    )
