"""A job's pipe becomes lines of a log and events: whole lines, slow ones, long ones, any bytes."""

import os
import queue
import stat
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from engine.agent.journal.redaction import Redaction
from engine.agent.link.event_stream import EventStream
from engine.agent.node.output import Log, pump
from engine.contract.event import Event
from engine.contract.worker_events import Output

TOKEN = "hf_0123456789"
PIECE = 32 * 1024  # characters of an event
BATCH = 8 * 1024  # of an event with many lines


class Kept(EventStream):
    """Keeps output events where others send them."""

    def __init__(self) -> None:
        super().__init__(BytesIO())
        self.events: queue.Queue[Output] = queue.Queue()

    def send(self, event: Event) -> None:
        assert isinstance(event, Output)
        self.events.put(event)


class Pumped:
    """A pipe that a thread pumps into a log, as in the worker. No line is slow."""

    def __init__(self, path: Path, secrets: tuple[str, ...] = (), partial_s: float = 3600) -> None:
        self.path, self.report = path, Kept()
        read, self._write = os.pipe()
        self._read, self._log = os.fdopen(read, "rb"), Log(path.parent, 0, self.report)
        arguments = (self._read, "stdout", self._log, Redaction(secrets), partial_s)
        self._thread = threading.Thread(target=pump, args=arguments, daemon=True)
        self._thread.start()

    def write(self, data: str | bytes) -> None:
        data = data.encode() if isinstance(data, str) else data
        while data:
            data = data[os.write(self._write, data) :]

    def end(self) -> list[tuple[str, bool]]:
        """Close the pipe; return texts and whether each ended its line."""
        os.close(self._write)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._read.close()
        self._log._file.close()  # the worker's is open to its end
        events = list(self.report.events.queue)
        log = self.path.read_bytes()
        for event in events:
            assert event.stream == "stdout"
            text = (event.text + ("\n" if event.ends_line else "")).encode()
            assert log[event.offset :].startswith(text)
        return [(event.text, event.ends_line) for event in events]


@pytest.fixture
def pumped(tmp_path: Path) -> Iterator[Pumped]:
    yield Pumped(tmp_path / "rank-0.log")


def test_lines_that_come_together_are_one_event_and_in_the_log(pumped: Pumped) -> None:
    pumped.write("one\n\ntwo\n")
    assert pumped.end() == [("one\n\ntwo", True)]
    assert pumped.path.read_text() == "one\n\ntwo\n"
    assert stat.S_IMODE(pumped.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("length", [1, 80, BATCH - 1, BATCH, BATCH + 1, PIECE + 1])
def test_an_event_has_whole_lines_up_to_a_limit(pumped: Pumped, length: int) -> None:
    lines = [chr(97 + n % 26) * length for n in range(max(3, 3 * BATCH // length))]
    pumped.write("\n".join(lines) + "\n")
    events = pumped.end()
    assert "".join(text + "\n" * ends for text, ends in events) == "\n".join(lines) + "\n"
    assert all(len(text) <= max(BATCH, min(length, PIECE)) for text, _ in events)
    assert len(events) <= max(2 * len(lines), 20)


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_text("before\n")
    pumped = Pumped(path)
    pumped.write("after\n")
    assert pumped.end() == [("after", True)]
    assert path.read_text() == "before\nafter\n"


def test_the_last_line_needs_no_end(pumped: Pumped) -> None:
    pumped.write("one\ntwo")
    assert pumped.end() == [("one", True), ("two", False)]
    assert pumped.path.read_text() == "one\ntwo"


def test_nothing_is_no_event(pumped: Pumped) -> None:
    assert pumped.end() == []


def test_what_might_have_become_a_secret_comes_at_the_end(tmp_path: Path) -> None:
    pumped = Pumped(tmp_path / "rank-0.log", (TOKEN,))
    pumped.write(f"with {TOKEN}\nand {TOKEN[:-1]}")
    assert pumped.end() == [("with ***", True), (f"and {TOKEN[:-1]}", False)]


@pytest.mark.parametrize(
    ("length", "pieces"),
    [
        (PIECE, [PIECE]),
        (PIECE + 1, [PIECE, 1]),
        (2 * PIECE, [PIECE, PIECE]),
        (2 * PIECE + 5, [PIECE, PIECE, 5]),
    ],
)
@pytest.mark.parametrize("ends", [True, False])
def test_a_long_line_comes_in_pieces(
    pumped: Pumped, length: int, pieces: list[int], ends: bool
) -> None:
    text = "".join(chr(97 + n % 26) for n in range(length))
    pumped.write(text + "\n" * ends)
    told = pumped.end()
    assert "".join(part for part, _ in told) == text
    assert all(0 < len(part) <= PIECE for part, _ in told)
    # Where the line ends within the read that made it too long, no piece is shorter than it must.
    assert len(told) == len(pieces)
    assert [end for _, end in told] == [False] * (len(told) - 1) + [ends]


def test_a_line_without_its_end_is_shown_after_a_while(tmp_path: Path) -> None:
    pumped = Pumped(tmp_path / "rank-0.log", partial_s=0.05)
    pumped.write("Continue? ")
    assert pumped.report.events.get(timeout=30).text == "Continue? "
    pumped.write("yes\n")
    assert pumped.end() == [("yes", True)]
    assert pumped.path.read_text() == "Continue? yes\n"


def test_a_secret_whose_beginning_waits_is_not_shown(tmp_path: Path) -> None:
    pumped = Pumped(tmp_path / "rank-0.log", (TOKEN,), 0.05)
    pumped.write(f"with {TOKEN[:5]}")
    assert pumped.report.events.get(timeout=30).text == "with "
    pumped.write(f"{TOKEN[5:]}\n")
    assert pumped.end() == [("***", True)]


def test_bytes_that_are_no_text_are_replaced_and_characters_cut_in_two_are_not(
    pumped: Pumped,
) -> None:
    smile = "\N{GRINNING FACE}".encode()
    pumped.write(b"a\xffb " + smile[:2])
    pumped.write(smile[2:] + b"\n" + smile[:3])
    assert pumped.end() == [("a\ufffdb \N{GRINNING FACE}", True), ("\ufffd", False)]
