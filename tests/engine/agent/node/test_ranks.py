"""The FIFO by which ranks report that they started, as the worker reads it."""

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from engine.agent.link.event_stream import EventStream
from engine.agent.node.readiness import Ranks
from tests.engine.conftest import Reader

FIFO = "ranks"  # as the scripts of launchers call it


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[tuple[Ranks, Path, list[tuple[int, int]]]]:
    """Ranks that are open, their FIFO, and after the test's `drain` what was reported."""
    reader, told = Reader(), []
    made = Ranks(tmp_path, 0, reader.stream)
    made.open()
    drain = made.drain

    def drain_and_read() -> None:
        drain()
        for event in reader.events():
            assert event["kind"] == "rank_started"
            told.append((event["process"], event["size"]))

    made.drain = drain_and_read  # type: ignore[method-assign]
    yield made, tmp_path / FIFO, told
    made.close()


def write(fifo: Path, text: str) -> None:
    """Write as a rank's shell does, which does not wait."""
    descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def test_each_rank_is_reported(ranks: tuple[Ranks, Path, list[tuple[int, int]]]) -> None:
    made, fifo, told = ranks
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert stat.S_IMODE(fifo.stat().st_mode) == 0o600
    write(fifo, "0 16\n")
    write(fifo, "15 16\n123456789 999999999\n")
    made.drain()
    write(fifo, "1 16\n")  # a late rank does not wait for a reader
    assert told == [(0, 16), (15, 16), (123456789, 999999999)]
    made.close()
    assert not fifo.exists()
    made.close()  # once more is fine


def test_what_is_no_rank_is_left_alone(ranks: tuple[Ranks, Path, list[tuple[int, int]]]) -> None:
    made, fifo, told = ranks
    write(fifo, "nonsense\n\n1\n1 2 3\n-1 2\n1 x\n1234567890 2\n1 1234567890\n\xb2 2\n7 8\n")
    made.drain()
    assert told == [(7, 8)]


def test_what_was_written_without_an_end_is_still_read(
    ranks: tuple[Ranks, Path, list[tuple[int, int]]],
) -> None:
    made, fifo, told = ranks
    write(fifo, "3 4")
    made.drain()
    assert told == [(3, 4)]


def test_what_an_earlier_run_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FIFO).write_text("of an earlier run")
    made = Ranks(tmp_path, 0, EventStream(BytesIO()))
    made.open()
    assert stat.S_ISFIFO((tmp_path / FIFO).stat().st_mode)
    made.drain()
    made.close()


def test_without_an_open_fifo_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    unopened = Ranks(tmp_path, 0, EventStream(BytesIO()))
    unopened.drain()
    unopened.close()
    assert list(tmp_path.iterdir()) == []


def test_nodes_that_share_a_folder_open_their_fifos_at_the_same_time(tmp_path: Path) -> None:
    nodes = 2
    begin = threading.Barrier(nodes)

    def open_again_and_again(rank: int) -> None:
        report = EventStream(BytesIO())
        for _ in range(100):
            ranks = Ranks(tmp_path, rank, report)
            begin.wait(60)
            try:
                ranks.open()
            except OSError:
                begin.abort()  # the other one waits for nothing
                raise
            ranks.drain()

    with ThreadPoolExecutor(nodes) as pool:
        openings = [pool.submit(open_again_and_again, rank) for rank in range(nodes)]
        assert [opening.result() for opening in openings] == [None, None]
