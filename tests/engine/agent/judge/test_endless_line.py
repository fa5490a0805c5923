"""Output without a newline: all that reads it holds a piece of it, and never the line.

What each step holds bounds what it copies, so that a flat memory is a linear time.
"""

import os
import threading
import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest

from engine.agent.journal.lines import LONGEST, WholeLines
from engine.agent.journal.redaction import Redaction
from engine.agent.judge.output_reader import OutputReader
from engine.agent.link.event_stream import EventStream
from engine.agent.node.output import PIECE, Log, pump
from engine.contract.event import Event
from engine.contract.worker_events import Output
from engine.record.result import LAST_LINES, ResultCollector
from tests.engine.conftest import make_plan

pytestmark = pytest.mark.slow

MIB = 1 << 20
SECRET = "hf_0123456789"


class Readers(EventStream):
    """All that reads a run's output: on the head, and in the client that follows it."""

    def __init__(self) -> None:
        super().__init__(BytesIO())
        self._reader = OutputReader(make_plan(nodes=1))
        self._lines, self._result = WholeLines(), ResultCollector()
        self.pieces, self.characters, self.lines = 0, 0, 0

    def send(self, event: Event) -> None:
        assert isinstance(event, Output)
        self._reader.read(event)
        self._result.see(event)
        self.pieces += 1
        self.characters += len(event.text)
        assert len(event.text) <= PIECE
        for whole in self._lines.feed(event):
            self.lines += 1
            assert len(whole.text) <= LONGEST


def read_all(folder: Path, blocks: int, block: bytes, secrets: tuple[str, ...]) -> Readers:
    """Everything that reads output has read so many blocks, which a pipe brought."""
    readers = Readers()
    log = Log(folder, 0, readers)
    read, write = os.pipe()

    def print_blocks() -> None:
        with os.fdopen(write, "wb", buffering=0) as job:
            for _ in range(blocks):
                rest = memoryview(block)
                while rest:
                    rest = rest[job.write(rest) :]

    printing = threading.Thread(target=print_blocks)
    printing.start()
    with os.fdopen(read, "rb") as pipe:
        pump(pipe, "stdout", log, Redaction(secrets))
    printing.join()
    log._file.close()
    return readers


@pytest.mark.parametrize("secrets", [(), (SECRET,)], ids=["open", "with a secret"])
@pytest.mark.parametrize("text", [b"x", b"\xf0\x9f\x98\x80"], ids=["ASCII", "four bytes"])
def test_what_is_held_of_an_endless_line_does_not_grow(
    tmp_path: Path, secrets: tuple[str, ...], text: bytes
) -> None:
    block, mib = text * (MIB // len(text)), 16
    tracemalloc.start()
    try:
        readers = read_all(tmp_path, mib, block, secrets)
        largest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    characters = mib * MIB // len(text)
    assert readers.characters == characters
    assert (tmp_path / "rank-0.log").stat().st_size == mib * MIB
    # A piece for each PIECE, or for each read of a pipe where that brings less.
    assert characters / PIECE <= readers.pieces <= mib * MIB / 4096
    assert characters // LONGEST - 1 <= readers.lines <= characters / LONGEST + 1
    # The client keeps the last lines of a node, which a result may show; beside those, some pieces.
    kept = LAST_LINES * LONGEST * (1 if len(text) == 1 else 4)
    assert largest < kept + MIB * 2
