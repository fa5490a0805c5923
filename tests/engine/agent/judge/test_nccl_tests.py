"""Tables of every nccl-tests version, tagged, torn and mixed with other output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.judge.table_rows import Shape, parse_row
from engine.contract.table import Row, Timing
from engine.contract.worker_events import Output
from tests.engine.read_output import TablesOfOutput


def out(text: str, rank: int = 0, ends_line: bool = True) -> Output:
    return Output(time=0, rank=rank, stream="stdout", text=text, ends_line=ends_line)


def row(text: str) -> Row:
    parser = TablesOfOutput()
    assert parser.read(out(text)) == (0,)
    (found,) = parser.tables[0].rows
    return found


P4DE = "  2147483648     536870912     float     sum      -1    51406   41.77   78.33      0"


@pytest.mark.parametrize("tag", ["", "0: ", " 12:   ", "[1,0]<stdout>:", "[1,15]<stderr>: "])
def test_row_behind_tags(tag: str) -> None:
    assert row(f"{tag}{P4DE}    51407   41.78   78.34      2") == Row(
        size=2147483648,
        count=536870912,
        dtype="float",
        redop="sum",
        root=-1,
        out_of_place=Timing(time_us=51406, algbw=41.77, busbw=78.33, wrong=0),
        in_place=Timing(time_us=51407, algbw=41.78, busbw=78.34, wrong=2),
    )


@pytest.mark.parametrize(
    ("text", "redop", "root", "time_us", "busbw", "wrong"),
    [
        (  # all_reduce up to 2.11
            "1073741824 268435456 float sum 8142.6 131.87 230.77 2e-07 8141.2 131.89 230.81 2e-07",
            *("sum", None, 8142.6, 230.77, (None, None)),
        ),
        (  # broadcast up to 2.11
            "8 2 float 0 45.82 0.00 0.00 N/A 38.17 0.00 0.00 N/A",
            *(None, 0, 45.82, 0.0, (None, None)),
        ),
        (  # all_gather up to 2.11, whose last column is a difference and no count
            "8 2 float 45.82 0.00 0.01 0e+00 38.17 0.00 0.00 N/A",
            *(None, None, 45.82, 0.01, (None, None)),
        ),
        (  # alltoall
            "64 2 bfloat16 none -1 31.5 0.00 0.02 0 30.9 0.00 0.00 N/A",
            *("none", -1, 31.5, 0.02, (0, None)),
        ),
        (  # wide numbers of 2.17.3
            "8 2 half sum -1 1.2e+07 0.00 0.02 1.2e+07 30 0 0 0",
            *("sum", -1, 1.2e7, 0.02, (12_000_000, 0)),
        ),
        (  # -S
            f"{P4DE} 51406 41.77 78.33 0 2026-11-20 19:20:21",
            *("sum", -1, 51406, 78.33, (0, 0)),
        ),
        (  # -I 1
            "8 2 f8e4m3 sum -1 10 1 2 0 9 11 10.5 1.5 20 2 3 4 19 21 20.5 1.5",
            *("sum", -1, 10, 2, (0, 4)),
        ),
    ],
)
def test_formats(
    text: str,
    redop: str | None,
    root: int | None,
    time_us: float,
    busbw: float,
    wrong: tuple[int | None, int | None],
) -> None:
    found = row(text)
    assert found.out_of_place is not None
    assert found.in_place is not None
    own = found.out_of_place
    assert (found.redop, found.root, own.time_us, own.busbw) == (redop, root, time_us, busbw)
    assert (own.wrong, found.in_place.wrong) == wrong


HALVES = "time algbw busbw error time algbw busbw error"


def test_error_column_is_a_difference_and_no_count() -> None:
    parser = TablesOfOutput()
    parser.read(out(f"#  size count type redop {HALVES}"))
    parser.read(
        out("# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20")
    )
    parser.read(out(f"#  size count type redop {HALVES}"))
    parser.read(out("8 2 float sum 1 2 3 2e-07 4 5 6 1e+02"))
    (found,) = parser.tables[-1].rows
    assert found.out_of_place is not None
    assert found.in_place is not None
    assert (found.out_of_place.wrong, found.out_of_place.error) == (None, 2e-07)
    assert (found.in_place.wrong, found.in_place.error) == (None, 100)


def test_row_that_comes_in_pieces_between_other_output() -> None:
    parser = TablesOfOutput()
    half = len(P4DE) // 2
    assert parser.read(out(P4DE[:half], ends_line=False)) == ()
    assert parser.read(out("node1:77 NCCL INFO Channel 00/0", rank=1)) == ()
    assert parser.read(out(P4DE[half:], ends_line=False)) == ()
    assert parser.read(out(" 51407 41.78 78.34 0")) == (0,)
    (found,) = parser.tables[0].rows
    assert found.out_of_place is not None
    assert (found.size, found.out_of_place.busbw) == (2147483648, 78.33)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
        "# Avg bus bandwidth    : 52.9753 ",
        "# Out of bounds values : 0 OK",
        "node0:1234:1240 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] via NET/IBext/0/GDRDMA",
        "8 2 float sum -1",
        "8 2 float sum -1 1 2 3",
        "8 2 float sum -1 a b c d 1 2 3 0",
        "8 2 string sum -1 1 2 3 0 1 2 3 0",
        "8 x float sum -1 1 2 3 0 1 2 3 0",
        "8 2 float sum -1 1 2 3 nan 1 2 3 0",
        "8 2 float sum -1 1 2 3 inf 1 2 3 0",
        "8 2 float 1 2 3 0",
        "8 2 float sum -1 1 2 3 0 1 2 3 0 1 2 3 0",
        "8 2 float sum x 1 2 3 0 1 2 3 0",
        "48576 262144 float sum -1 1 2 3 0 1 2 3 0",  # of 1048576, its first digits torn off
        "8 2 float sum -1 1 2 3 0",  # torn behind its first half
        "x 2 float sum -1 1 2 3 0 1 2 3 0",
        "8 2 float sum -1 1 2 3 0 1 2 3 0 2026-11-20",
        "8 2 float sum -1 1 2 3 0 1 2 3 0 2026-11-20 soon",
    ],
)
def test_what_is_no_row(text: str) -> None:
    assert TablesOfOutput().read(out(text)) == ()


@given(st.text(max_size=200), st.booleans())
def test_no_text_upsets_it(text: str, counts: bool) -> None:
    parse_row(text, Shape(counts))
    parser = TablesOfOutput()
    parser.read(out(text))
    parser.read(out(f"#{text}"))


NUMBER = st.floats(0, 1e9).map(lambda value: f"{value:.2f}")


@given(st.integers(1, 2**40), st.lists(NUMBER, min_size=6, max_size=6), st.text(" \t", min_size=1))
def test_any_spacing(count: int, numbers: list[str], space: str) -> None:
    columns = [*numbers[:3], "0", *numbers[3:], "N/A"]
    found = row(space.join([str(count * 8), str(count), "double", "sum", "-1", *columns]))
    own, in_place = found.out_of_place, found.in_place
    assert own is not None
    assert in_place is not None
    assert found.size == count * 8
    assert [own.time_us, own.algbw, own.busbw] == [float(n) for n in numbers[:3]]
    assert in_place.busbw == float(numbers[5])
