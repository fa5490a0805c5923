"""Two runs compared: what counts as the same test, as a change, and as noise."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from engine.analysis.comparison import Difference, compare, measurements
from engine.contract.plan import Case
from engine.contract.table import Facts, Row, TableRank, Timing
from engine.record.result import Table


def table(*times: float, in_place: float | None = None, **facts: object) -> Table:
    """A table with a row of 1024 bytes for each time, which are then repeats of one size."""

    def half(time_us: float) -> Timing:
        return Timing(time_us=time_us, algbw=1, busbw=1024 / time_us, wrong=0)

    return Table(
        facts=TypeAdapter(Facts).validate_python({"rank": 0, "collective": "all_reduce", **facts}),
        rows=tuple(
            Row(
                size=1024, count=256, dtype="float", redop="sum", root=-1,
                out_of_place=half(time_us), in_place=half(in_place) if in_place else None,
            )
            for time_us in times
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "mark", "noise"),
    [
        ((100,), (112,), "slower", 0.10),  # 10.7 % of its speed is lost
        ((100,), (110,), "same", 0.10),
        ((100,), (90,), "faster", 0.10),
        ((99, 100, 101), (104, 105, 106), "slower", 0.02),  # repeats show smaller changes
        ((90, 100, 110), (104, 105, 106), "same", 0.20),  # and hide those within their spread
        ((100, 100), (100.5, 100.5), "same", 0.01),  # repeats that agree by chance
        ((7, 8, 9), (6.4,), "same", 0.25),  # a change that is just the noise
        ((99, 100, 101), (105,), "same", 0.10),  # one run alone with repeats
    ],
)
def test_a_change_beyond_the_noise_of_repeats_is_marked(
    before: tuple[float, ...], after: tuple[float, ...], mark: str, noise: float
) -> None:
    (change,) = compare([table(*before)], [table(*after)]).changes
    assert (change.mark, round(change.noise, 3)) == (mark, noise)


def test_cases_that_differ_in_their_variables_are_no_repeats() -> None:
    tables = []
    for number, algorithm in enumerate(("Ring", "Tree", "Ring"), 1):
        case = Case(
            number=number,
            title="",
            collective="all_reduce",
            min_bytes=1024,
            max_bytes=1024,
            variables={"NCCL_ALGO": algorithm},
        )
        tables.append(table(10 * number, case=case))
    found = measurements(tables)
    assert [
        (series.title, figures[1024, "out-of-place"].time_us) for series, figures in found.items()
    ] == [
        ("all_reduce float sum NCCL_ALGO=Ring", 20),
        ("all_reduce float sum NCCL_ALGO=Tree", 20),
    ]


def test_repeats_are_tables_of_the_same_test() -> None:
    ranks = tuple(
        TableRank(group=0, rank=rank, pid=1, host=f"ip-{rank}", device=0, pci="", name="H100")
        for rank in (0, 1)
    )
    runs = [table(10, in_place=20), table(12), table(30, ranks=ranks), table(40, rank=1)]
    found = measurements(runs)
    assert [(series.title, series.node) for series in found] == [
        ("all_reduce float sum", 0),
        ("all_reduce float sum, 2 ranks on 2 hosts", 0),
        ("all_reduce float sum", 1),
    ]
    first = next(iter(found.values()))
    assert list(first) == [(1024, "out-of-place"), (1024, "in-place")]
    both = first[1024, "out-of-place"]
    assert (both.repeats, both.time_us, both.fastest_us, both.slowest_us) == (2, 11, 10, 12)


def test_the_same_number_of_ranks_on_other_hosts_is_another_test() -> None:
    def on(*hosts: str) -> Table:
        return table(10, ranks=tuple(
            TableRank(group=0, rank=rank, pid=1, host=host, device=0, pci="", name="H100")
            for rank, host in enumerate(hosts)
        ))  # fmt: skip

    before = [on("ip-b", "ip-a"), on("ip-a", "ip-c"), on("ip-c"), on("ip-b", "ip-a")]
    assert [series.title for series in measurements(before)] == [
        "all_reduce float sum, 2 ranks on 2 hosts",
        "all_reduce float sum, 2 ranks on hosts 1, 2",
        "all_reduce float sum, 1 rank on host 2",
    ]
    after = [on("ip-x", "ip-y"), on("ip-z", "ip-y")]
    assert [change.series.hosts for change in compare(before, after).changes] == [(0, 1), (1, 2)]


def test_what_only_one_run_has_is_counted_and_other_versions_are_named() -> None:
    before = table(10, in_place=20, nccl="2.27.3", flags={"iterations": 20})
    after = table(10, nccl="2.28.9", flags={"iterations": 20})
    found = compare([before], [after, table(9, collective="broadcast")])
    assert (len(found.changes), found.only_before, found.only_after) == (1, 1, 1)
    assert found.differences == (Difference(name="NCCL", before="2.27.3", after="2.28.9"),)


@pytest.mark.parametrize(
    "row", [{"out_of_place": Timing(time_us=0, algbw=0, busbw=0, wrong=0)}, {"size": 0}]
)
def test_no_time_and_no_data_are_no_measurements(row: dict[str, Any]) -> None:
    whole = table(10)
    empty = whole.model_copy(update={"rows": (replace(whole.rows[0], **row),)})
    assert compare([empty], [empty]).changes == ()
    assert compare([whole], [whole]).marked("same") == 1


def test_every_fact_that_differs_is_named_once() -> None:
    def run(number: int) -> list[Table]:
        ranks = tuple(
            TableRank(group=0, rank=rank, pid=1, host="ip", device=0, pci="", name="H100")
            for rank in range(number)
        )
        facts = {name: f"{number}.0" for name in ("nccl_tests", "nccl", "plugin", "driver")}
        flags = {"iterations": number, "warmup": number, "checks": number}
        known = table(10, **facts, flags=flags, ranks=ranks)  # type: ignore[arg-type]
        return [known, known, table(10), table(10, nccl="2.0.1")]

    assert [(one.name, one.before, one.after) for one in compare(run(1), run(3)).differences] == [
        ("nccl-tests", "1.0", "3.0"),
        ("NCCL", "1.0, 2.0.1", "3.0, 2.0.1"),
        ("plugin", "1.0", "3.0"),
        ("CUDA driver", "1.0", "3.0"),
        ("ranks", "1", "3"),
        ("iterations", "1", "3"),
        ("warm-up", "1", "3"),
    ]
    assert compare(run(1), run(1)).differences == ()
    unknown = compare([table(10)], run(3)).differences
    assert {one.name: one.before for one in unknown}["ranks"] == ""


def test_a_change_has_the_figures_of_both_runs() -> None:
    before, after = [table(10, in_place=20), table(10, in_place=20)], [table(20, in_place=15)]
    first, second = compare(before, after).changes
    assert (first.series.title, first.size, first.half) == (
        "all_reduce float sum",
        1024,
        "out-of-place",
    )
    assert (first.before.repeats, first.after.repeats) == (2, 1)
    assert (first.before.time_us, first.after.time_us, first.change) == (10, 20, -0.5)
    assert (second.half, second.mark, round(second.change, 3)) == ("in-place", "faster", 0.333)
    found = compare(before, after)
    assert [found.marked(mark) for mark in ("slower", "faster", "same")] == [1, 1, 0]


@pytest.mark.parametrize(
    ("row", "facts", "title"),
    [
        ({"redop": "none"}, {}, "all_reduce float"),
        ({"redop": None, "root": None}, {}, "all_reduce float"),
        ({"root": 0}, {}, "all_reduce float sum root 0"),
        ({}, {"flags": {"graph": 1}}, "all_reduce float sum graph 1"),
        ({}, {"flags": {"aggregated": 1}}, "all_reduce float sum"),
        ({}, {"flags": {"aggregated": 2}}, "all_reduce float sum aggregated 2"),
    ],
)
def test_a_series_has_all_that_makes_a_test_another(
    row: dict[str, Any], facts: dict[str, object], title: str
) -> None:
    whole = table(10, **facts)  # type: ignore[arg-type]
    other = whole.model_copy(update={"rows": (replace(whole.rows[0], **row),)})
    (series,) = measurements([other])
    assert series.title == title


def test_wrong_values_of_the_worst_repeat_count() -> None:
    def of(*wrong: int | None) -> int | None:
        rows = []
        for count in wrong:
            half = Timing(time_us=0.5, algbw=1, busbw=1, wrong=count)
            rows.append(replace(table(1).rows[0], out_of_place=half))
        tables = [table().model_copy(update={"rows": tuple(rows)})]
        (points,) = measurements(tables).values()
        return points[1024, "out-of-place"].wrong

    assert (of(None, 3, 0), of(0, None), of(None)) == (3, 0, None)
