"""A long journal is taken up fast: output that nothing follows from is counted, and not read."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from engine.agent import resuming
from engine.agent.control import JOURNAL
from engine.agent.journal import Journal
from engine.agent.output_reader import NOT_JUDGED, OutputReader
from engine.agent.resuming import Recorded, recorded_lines
from engine.agent.states import Verdict
from engine.agent.watchdog import RECENT
from tests.engine.conftest import make_plan

PLAN = make_plan(nodes=2)
FAILED = Verdict("failed", 1, 0, "rank 0 (node0) exited with 1", is_jobs_own=True)
TEXTS = st.sampled_from(
    [
        "step 1",
        "\n".join(["step"] * (RECENT - 2)),
        'a "quoted" line é, "rank": 0}',
        "a path\\name",
        "OSError: No space left on device",
        "  Remote daemon: [[1,0],1] on node 10.213.1.11",
        "gpuctl: in a pipe of entry 1 of the commands, part 1 of 2 ended with 1",
        "Too many open",
        " files",
    ]
)
EVENTS = st.lists(st.tuples(st.integers(0, 1), TEXTS, st.booleans()), max_size=8)


def append(journal: Journal, reader: OutputReader, number: int, event: Any) -> None:
    """Write an event of output and what follows from it, as the supervisor does."""
    rank, text, ends = event
    fields = {"time": 1795162145.25, "sequence": number, "stream": "stdout", "text": text}
    line = {"kind": "output", **fields, "ends_line": ends, "offset": 7, "rank": rank}
    followed = reader.read(line)
    for one in (line, *followed):
        journal.append(**one)


def write(folder: Path, events: list[tuple[int, str, bool]]) -> OutputReader:
    """Write the journal of a run; return the reader of its output."""
    journal, reader = Journal(folder / JOURNAL), OutputReader(PLAN)
    numbers = [0, 0]
    for event in events:
        numbers[event[0]] += 1
        append(journal, reader, numbers[event[0]], event)
    journal.close()
    return reader


def end(reader: OutputReader) -> Any:
    """The end of a run in which both nodes fail."""
    for rank in (0, 1):
        fields: dict[str, Any] = {"rank": rank, "exit_code": 1, "is_own_end": True, "facts": []}
        reader.read({"kind": "node_examined", **fields})
    lines, verdict = reader.end(FAILED)
    return lines, verdict, reader.followed


@given(events=EVENTS)
def test_the_next_supervisor_judges_as_the_one_before(
    tmp_path_factory: Any, events: list[tuple[int, str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    reader = write(folder, events)
    replayed, recorded = OutputReader(PLAN), Recorded(PLAN)
    for line in recorded_lines(folder / JOURNAL):
        recorded.add(line)
        replayed.replay(line)
    assert replayed.unrecorded == []
    ranks = [rank for rank, _, _ in events]
    assert recorded.received == {rank: ranks.count(rank) for rank in set(ranks)}
    assert recorded.missing == 0
    assert end(replayed) == end(reader)


def test_output_is_not_parsed_again(tmp_path: Path) -> None:
    write(tmp_path, [(1, "step 1\nstep 2\nstep 3", True)] * 500 + [(0, "# a table", True)])
    with mock.patch.object(resuming, "json", mock.Mock(wraps=json)) as parsers:
        lines = list(recorded_lines(tmp_path / JOURNAL))
    assert parsers.loads.call_count == 1
    assert lines[499] == {"kind": NOT_JUDGED, "rank": 1, "sequence": 500, "lines": 3}
    assert lines[500]["text"] == "# a table"
