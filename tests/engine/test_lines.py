"""Pieces of output joined to lines, by rank and stream."""

from hypothesis import given
from hypothesis import strategies as st

from engine.events import Output
from engine.lines import LONGEST, WholeLines


def piece(text: str, ends: bool, time: float = 0.0, **fields: object) -> Output:
    whole = {"rank": 0, "stream": "stdout", "offset": 0, **fields}
    return Output.model_validate({"time": time, "text": text, "ends_line": ends, **whole})


def test_a_line_has_time_and_place_of_its_first_piece() -> None:
    lines = WholeLines()
    assert lines.feed(piece("a", False, 1.0, offset=7)) == ()
    assert lines.feed(piece("b", False, 2.0, offset=8)) == ()
    assert lines.feed(piece("c", True, 3.0, offset=9)) == (piece("abc", True, 1.0, offset=7),)
    assert lines.feed(piece("next", True, 4.0)) == (piece("next", True, 4.0),)


def test_ranks_and_streams_have_lines_of_their_own() -> None:
    lines = WholeLines()
    lines.feed(piece("a", False))
    assert lines.feed(piece("x", True, rank=1)) == (piece("x", True, rank=1),)
    assert lines.feed(piece("e", True, stream="stderr")) == (piece("e", True, stream="stderr"),)
    assert lines.feed(piece("b", True)) == (piece("ab", True),)


def test_what_never_ended_is_the_rest() -> None:
    lines = WholeLines()
    lines.feed(piece("a", False))
    lines.feed(piece("b", False, rank=1))
    lines.feed(piece("whole", True, rank=2))
    assert lines.rest() == (piece("a", False), piece("b", False, rank=1))
    assert lines.rest() == ()
    assert lines.feed(piece("c", True)) == (piece("c", True),)


def test_a_carriage_return_ends_a_line_too() -> None:
    lines = WholeLines()
    shown = lines.feed(piece("\r 10%\r 20%\r", False, 1.0, offset=5))
    assert [(line.text, line.offset) for line in shown] == [("", 5), (" 10%", 6), (" 20%", 11)]
    assert lines.feed(piece(" 100%", False, 2.0, offset=16)) == ()
    assert lines.feed(piece("", True, 3.0)) == (piece(" 100%", True, 2.0, offset=16),)


def test_a_line_that_ends_with_both_is_one() -> None:
    assert WholeLines().feed(piece("of a Windows program\r", True)) == (
        piece("of a Windows program", True),
    )


def test_a_line_that_never_ends_comes_in_parts() -> None:
    lines = WholeLines()
    text = "x" * (LONGEST - 1)
    assert lines.feed(piece(text, False)) == ()
    (first,) = lines.feed(piece("é" + "y" * 5, False, 1.0, offset=LONGEST - 1))
    assert first == piece(text + "é", True)
    assert lines.rest() == (piece("yyyyy", False, 1.0, offset=LONGEST + 1),)


PIECES = st.lists(st.tuples(st.text("ab\r", max_size=9), st.booleans()), max_size=20)


@given(PIECES)
def test_nothing_is_lost_or_doubled(pieces: list[tuple[str, bool]]) -> None:
    lines = WholeLines()
    shown = [line.text for text, ends in pieces for line in lines.feed(piece(text, ends))]
    shown += [line.text for line in lines.rest()]
    printed = "".join(text + ("\n" if ends else "") for text, ends in pieces)
    wanted = printed.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [line for line in shown if line] == [line for line in wanted if line]


def test_a_long_line_takes_work_in_proportion_to_its_length() -> None:
    """Characters that are copied, seen by what is held at most."""
    lines, part = WholeLines(), "x" * 1024
    cut = [line for _ in range(4096) for line in lines.feed(piece(part, False))]
    assert {len(line.text) for line in cut} == {LONGEST}
    assert sum(len(line.text) for line in (*cut, *lines.rest())) == 4096 * 1024
