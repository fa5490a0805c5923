"""Two runs compared: what counts as the same test, as a change, and as noise."""

import pytest

from engine import nccl_tests
from engine.comparison import Difference, compare
from engine.measurements import measurements
from engine.nccl_tests import Facts, Row, Table, Timing


def table(*times: float, in_place: float | None = None, **facts: object) -> Table:
    """A table with a row of 1024 bytes for each time, which are then repeats of one size."""

    def half(time_us: float) -> Timing:
        return Timing(time_us=time_us, algbw=1, busbw=1024 / time_us, wrong=0)

    return Table(
        facts=Facts.model_validate({"rank": 0, "collective": "all_reduce", **facts}),
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
        ((99, 100, 101), (105,), "same", 0.10),  # one run alone with repeats
    ],
)
def test_a_change_beyond_the_noise_of_repeats_is_marked(
    before: tuple[float, ...], after: tuple[float, ...], mark: str, noise: float
) -> None:
    (change,) = compare([table(*before)], [table(*after)]).changes
    assert (change.mark, round(change.noise, 3)) == (mark, noise)


def test_repeats_are_tables_of_the_same_test() -> None:
    ranks = tuple(
        nccl_tests.TestedRank(rank=rank, pid=1, host=f"ip-{rank}", device=0, pci="", name="H100")
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


def test_what_only_one_run_has_is_counted_and_other_versions_are_named() -> None:
    before = table(10, in_place=20, nccl="2.27.3", flags={"iterations": 20})
    after = table(10, nccl="2.28.9", flags={"iterations": 20})
    found = compare([before], [after, table(9, collective="broadcast")])
    assert (len(found.changes), found.only_before, found.only_after) == (1, 1, 1)
    assert found.differences == (Difference(name="NCCL", before="2.27.3", after="2.28.9"),)


@pytest.mark.parametrize(
    "row", [{"out_of_place": Timing(time_us=0, algbw=0, busbw=0, wrong=0)}, {"size": 0}]
)
def test_no_time_and_no_data_are_no_measurements(row: dict[str, object]) -> None:
    whole = table(10)
    empty = whole.model_copy(update={"rows": (whole.rows[0].model_copy(update=row),)})
    assert compare([empty], [empty]).changes == ()
    assert compare([whole], [whole]).marked("same") == 1
