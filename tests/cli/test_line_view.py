"""Lines of ranks on the terminal: folded, their colours ended, unfinished ones in place."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import Output as Out
from cli.render.lines import FOLD_S, Folding, LineView, dropped_lines
from engine.agent.journal.lines import Line
from engine.contract.head_events import DroppedOutput, OutputDropped
from tests.terminals import terminal_as_stdout

PAIR = ["node0", "node1"]


def line(rank: int, text: str, at: float = 0.0) -> Line:
    return Line(at, rank, "stdout", text)


def folded(*lines: Line, nodes: int = 4) -> list[tuple[list[int], str]]:
    folds = Folding(nodes)
    groups = [group for one in lines for group in folds.add(one)]
    return groups + folds.rest()


def test_equal_lines_of_ranks_are_one() -> None:
    every = [line(rank, "loss 1") for rank in range(4)]
    assert folded(*every) == [([0, 1, 2, 3], "loss 1")]
    assert folded(line(2, "a"), line(0, "b"), line(0, "a")) == [([2], "a"), ([0], "b"), ([0], "a")]
    assert folded(line(0, "a"), line(0, "a"), line(1, "a")) == [([0], "a"), ([0, 1], "a")]


def test_a_line_that_all_ranks_have_printed_waits_no_longer() -> None:
    folds = Folding(2)
    assert folds.add(line(0, "a")) == []
    assert folds.add(line(1, "a")) == [([0, 1], "a")]
    assert not folds.is_waiting


def test_lines_of_other_times_are_not_folded() -> None:
    late = line(1, "a", FOLD_S + 0.1)
    assert folded(line(0, "a"), late) == [([0, 1], "a")]  # it came before the first was shown
    assert folded(line(0, "a"), line(2, "b", FOLD_S + 0.1), late) == [
        ([0], "a"),
        ([2], "b"),
        ([1], "a"),
    ]


def test_what_waits_is_due_after_a_while() -> None:
    folds = Folding(2)
    folds.add(line(0, "a"))
    now = time.monotonic()
    assert folds.due(now - 1) == []
    assert folds.due(now + FOLD_S) == [([0], "a")]


LINES = st.lists(
    st.builds(line, st.integers(0, 3), st.sampled_from("abc"), st.sampled_from([0.0, 5.0])),
    max_size=40,
)


@given(LINES)
def test_every_rank_keeps_its_lines_and_their_order(lines: list[Line]) -> None:
    groups = folded(*lines)
    for rank in range(4):
        shown = [text for ranks, text in groups if rank in ranks]
        assert shown == [one.text for one in lines if one.rank == rank]


def test_folded_lines_have_their_nodes_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(Out(), [f"node{n}" for n in range(16)], folds=True)
    view.show([line(rank, "NCCL ready") for rank in (0, 1, 2, 9)])
    view.show([line(3, "alone")])
    assert capsys.readouterr().out == ""
    view.rest()
    assert capsys.readouterr().out == "node[0-2,9] NCCL ready\n[node3]  alone\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[1,5]<stdout>:step 1", "[rank 5] step 1"),
        ("[1,12][ip-10-0-0-4:311]<stderr>: step 1", "[rank 12] step 1"),
        ("[prterun-ip-10-0-0-4-311@1,5]<stdout>: step 1", "[rank 5] step 1"),
        ("[3]<stderr>:step 1", "[rank 3] step 1"),
        ("[rank5]:step 1", "[rank 5] step 1"),  # torchrun's --tee
        ("[rank5]:", "[rank 5] "),
        ("[rank5]:   File 'x.py'", "[rank 5]   File 'x.py'"),
        (
            "[rank5]:[E1127 11:15:38 x.cpp:689] [Rank 5] x",
            "[rank 5] [E1127 11:15:38 x.cpp:689] [Rank 5] x",
        ),
        ("[rank5]:[rank5]: Traceback", "[rank 5] Traceback"),
        ("[1,5]<stderr>:[rank5]: Traceback", "[rank 5] Traceback"),
        ("[1,5]<stderr>:[rank6]: of another", "[rank 5] [rank6]: of another"),
        ("[rank 5] step 1", "[node1] [rank 5] step 1"),
        ("see [rank5]: step 1", "[node1] see [rank5]: step 1"),
        ("[default5]:step 1", "[node1] [default5]:step 1"),  # the number on the node
        ("[5] step 1", "[node1] [5] step 1"),
        ("see [1,5]<stdout>:", "[node1] see [1,5]<stdout>:"),
    ],
)
def test_a_tag_is_the_rank_of_a_line(
    text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = LineView(Out(), PAIR)
    view.show([line(1, text)])
    if not view.show_text(1, text):
        view.show([line(1, text)])
    assert capsys.readouterr().out == f"{shown}\n" * 2


def test_each_node_and_each_tagged_rank_has_one_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    LineView(Out(), PAIR).show([line(0, "a"), line(1, "b"), line(0, "[1,1]<stdout>:c")])
    assert capsys.readouterr().out == (
        "\x1b[36m[node0] \x1b[0ma\n\x1b[33m[node1] \x1b[0mb\n\x1b[33m[rank 1] \x1b[0mc\n"
    )


def test_a_live_run_shows_what_waits() -> None:
    class Printed(Out):
        def pass_on(self, text: str) -> None:
            said.set_result(text)

    async def run() -> str:
        LineView(Printed(), PAIR, folds=True).show([line(0, "alone")])
        async with asyncio.timeout(30):
            return await said

    loop = asyncio.new_event_loop()
    said: asyncio.Future[str] = loop.create_future()
    assert loop.run_until_complete(run()) == "[node0] alone"
    loop.close()


def test_a_colour_ends_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    LineView(Out(), PAIR).show([line(0, "\x1b[31mred"), line(1, "plain")])
    assert capsys.readouterr().out == "[node0] \x1b[31mred\x1b[0m\n[node1] plain\n"
    LineView(Out(no_color=True), PAIR).show([line(0, "\x1b[31mred")])
    assert capsys.readouterr().out == "[node0] red\n"


@pytest.mark.parametrize(
    ("attack", "seen"),
    [
        ("\x1b]52;c;Y3VybA==\x07", "^[]52;c;Y3VybA==^G"),
        ("\x1b]0;owned\x1b\\", "^[]0;owned^[\\"),
        ("\x1b[?1049h", "^[[?1049h"),
        ("\x9b?1049h\x9d0;x\x9c", "\\x9b?1049h\\x9d0;x\\x9c"),
        ("\x1b[31m\x1b[2J", "\x1b[31m^[[2J\x1b[0m"),
        ("\x1bc", "^[c"),
    ],
)
def test_a_job_cannot_act_on_the_terminal(
    attack: str, seen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    LineView(Out(), ["node0"]).show([line(0, attack)])
    assert capsys.readouterr().out == f"[node0] {seen}\n"


def test_an_unfinished_line_is_in_the_last_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    with terminal_as_stdout() as screen:
        view = LineView(Out(), PAIR)
        view.show_state(0, "50%")
        view.show_state(1, "\x1b[32m60%\x1b]0;x\x07 " + "#" * 40)
        view.show([line(0, "100%")])
        view.clear()
        assert screen() == ("\r\x1b[K[node0] 50%\r\x1b[K[node1] 60%^[]0;x^G\r\x1b[K[node0] 100%\n")


def test_elsewhere_only_the_last_state_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    LineView(Out(), PAIR).show_state(0, "50%")
    assert capsys.readouterr().out == ""


def test_what_was_removed_is_said_by_rank() -> None:
    ten = 1795168920.0  # 2026-11-20 10:02:00 UTC
    event = OutputDropped(
        time=ten,
        start=0,
        end=1,
        ranks=(
            DroppedOutput(rank=0, size=1288490189, since=ten, until=ten + 98 * 60),
            DroppedOutput(rank=3, size=2000, since=ten, until=ten + 24 * 3600),
        ),
    )
    assert [(one.rank, one.text) for one in dropped_lines(event)] == [
        (0, "… 1.2 GiB of output from 10:02:00 to 11:40:00 UTC were not kept"),
        (
            3,
            "… 2 KiB of output from 2026-11-20 10:02:00 to 2026-11-21 10:02:00 UTC were not kept",
        ),
    ]
