"""Pieces of output joined to lines, by rank and stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.journal.lines import LONGEST, Line, WholeLines
from engine.contract.codec import from_json
from engine.contract.head_events import RunFinished, RunNode, RunStarted
from engine.contract.worker_events import Output
from engine.record.result import LAST_LINES, ResultCollector

BEGUN = RunStarted(
    time=0.0,
    run_id="job-000001",
    name="job",
    cluster="demo",
    startup_order="any",
    stop_criteria="all-done",
    on_stop="keep",
    nodes=(RunNode(rank=0, name="node0", role="master", private_ip="10.0.0.1"),),
)
FAILED = RunFinished(time=9.0, status="failed", exit_code=1, first_failed_rank=0, reason="x")


def piece(text: str, ends: bool, time: float = 0.0, **fields: object) -> Output:
    whole = {"rank": 0, "stream": "stdout", "offset": 0, **fields}
    return from_json(Output, {"time": time, "text": text, "ends_line": ends, **whole})


def line(text: str, time: float = 0.0, rank: int = 0, stream: str = "stdout") -> Line:
    return Line(time, rank, stream, text)


def test_a_line_has_the_time_of_its_first_piece() -> None:
    lines = WholeLines()
    assert lines.feed(piece("a", False, 1.0)) == ()
    assert lines.feed(piece("b", False, 2.0)) == ()
    assert lines.feed(piece("c", True, 3.0)) == (line("abc", 1.0),)
    assert lines.feed(piece("next", True, 4.0)) == (line("next", 4.0),)


def test_many_lines_in_one_event() -> None:
    lines = WholeLines()
    assert lines.feed(piece("a\n\nb", True, 1.0)) == (line("a", 1.0), line("", 1.0), line("b", 1.0))
    assert lines.feed(piece("c\nd", False, 2.0)) == (line("c", 2.0),)
    assert lines.feed(piece("e\nf", True, 3.0)) == (line("de", 2.0), line("f", 3.0))


def test_ranks_and_streams_have_lines_of_their_own() -> None:
    lines = WholeLines()
    lines.feed(piece("a", False))
    assert lines.feed(piece("x", True, rank=1)) == (line("x", rank=1),)
    assert lines.feed(piece("e", True, stream="stderr")) == (line("e", stream="stderr"),)
    assert lines.feed(piece("b", True)) == (line("ab"),)


def test_what_never_ended_is_the_rest() -> None:
    lines = WholeLines()
    lines.feed(piece("a", False))
    lines.feed(piece("b", False, rank=1))
    lines.feed(piece("whole", True, rank=2))
    assert lines.rest() == (line("a"), line("b", rank=1))
    assert lines.rest() == ()
    assert lines.feed(piece("c", True)) == (line("c"),)


def test_a_progress_bar_is_one_line_with_its_last_state() -> None:
    lines = WholeLines()
    assert lines.feed(piece("\r 10%\r 20%\r", False, 1.0)) == ()
    assert lines.state(0, "stdout") == " 20%"
    assert lines.feed(piece(" 100%", False, 2.0)) == ()
    assert lines.state(0, "stdout") == " 100%"
    assert lines.state(1, "stdout") == ""
    assert lines.feed(piece("", True, 3.0)) == (line(" 100%", 1.0),)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["of a Windows program\r"], "of a Windows program"),
        (["abcdef\rxy"], "xycdef"),  # as on a terminal, what is not overwritten stays
        (["abcdef\rxy", "z"], "xyzdef"),
        (["abcdef\r", "x"], "xbcdef"),
        (["long text\r\x1b[Kshort"], "\x1b[Kshort"),  # a sequence has no width
        (["\x1b[32m50%\x1b[0m\r", "60%"], "60%"),
    ],
)
def test_a_carriage_return_overwrites_the_line(pieces: list[str], shown: str) -> None:
    lines = WholeLines()
    for text in pieces[:-1]:
        assert lines.feed(piece(text, False)) == ()
    assert lines.feed(piece(pieces[-1], True)) == (line(shown),)


def test_a_line_that_never_ends_comes_in_parts() -> None:
    lines = WholeLines()
    text = "x" * (LONGEST - 1)
    assert lines.feed(piece(text, False)) == ()
    assert lines.feed(piece("é" + "y" * 5, False, 1.0)) == (line(text + "é"),)
    assert lines.rest() == (line("yyyyy"),)


PIECES = st.lists(st.tuples(st.text("ab\r\n", max_size=9), st.booleans()), max_size=20)


@given(PIECES)
def test_nothing_is_lost_or_doubled(pieces: list[tuple[str, bool]]) -> None:
    """However the text is cut into pieces, its lines are those of the text in one piece."""
    lines = WholeLines()
    shown = [line.text for text, ends in pieces for line in lines.feed(piece(text, ends))]
    shown += [line.text for line in lines.rest()]
    printed = "".join(text + ("\n" if ends else "") for text, ends in pieces)
    wanted = [on_terminal(line) for line in printed.split("\n")]
    assert shown == wanted[:-1] + [last for last in wanted[-1:] if printed.split("\n")[-1]]


def on_terminal(text: str) -> str:
    """The line as a terminal shows it, character by character."""
    cells: list[str] = []
    place = 0
    for character in text:
        if character == "\r":
            place = 0
        else:
            cells[place : place + 1] = character
            place += 1
    return "".join(cells)


def test_a_long_line_takes_work_in_proportion_to_its_length() -> None:
    """Characters that are copied, seen by what is held at most."""
    lines, part = WholeLines(), "x" * 1024
    cut = [line for _ in range(4096) for line in lines.feed(piece(part, False))]
    assert {len(line.text) for line in cut} == {LONGEST}
    assert sum(len(line.text) for line in (*cut, *lines.rest())) == 4096 * 1024


@given(
    st.lists(
        st.tuples(st.integers(0, 45), st.booleans(), st.sampled_from(["x", "a\rb", ""])), max_size=8
    )
)
def test_a_result_has_the_last_lines_however_they_came(
    parts: list[tuple[int, bool, str]],
) -> None:
    events = [
        piece("\n".join(f"{number}.{i} {text}" for i in range(count + 1)), ends)
        for number, (count, ends, text) in enumerate(parts)
    ]
    lines, collector = WholeLines(), ResultCollector()
    collector.see(BEGUN)
    expected = [one.text for event in events for one in lines.feed(event)]
    expected += [one.text for one in lines.rest()]
    for event in events:
        collector.see(event)
    collector.see(FAILED)
    result = collector.result()
    assert result is not None
    assert result.last_lines == tuple(expected[-LAST_LINES:])
