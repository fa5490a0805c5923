"""Pieces of output joined to lines, by rank and stream."""

from engine.events import Output
from engine.lines import WholeLines


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
