"""A long journal is taken up fast: output that nothing follows from is counted, and not read."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.run_state import RunState, journal_events
from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.judge.failure_patterns import RECENT
from engine.agent.judge.output_reader import OutputReader
from engine.contract.event import Event
from engine.contract.head_events import (
    DroppedOutput,
    GateJudged,
    NetworkSeen,
    OutputDropped,
    OutputJudged,
)
from engine.contract.plan import Case, Gate, LaunchPlan, NetworkPlan, Sweep
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NodeExamined, Output
from tests.engine.agent.judge.test_numbers import row, table
from tests.engine.bare_plans import bare_node, bare_plan
from tests.engine.conftest import make_plan

PLAN = make_plan(nodes=2)
FAILED = Verdict("failed", 1, 0, "node0: exited with 1", is_jobs_own=True)
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
    sent = Output(rank, "stdout", text, ends, offset=7, time=1795162145.25, sequence=number)
    for recorded in reader.read(sent):
        journal.append(recorded)


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
        reader.read(NodeExamined(rank, 1, is_own_end=True, facts=()))
    events, verdict = reader.end(FAILED)
    return events, verdict, reader.followed


@given(events=EVENTS)
def test_the_next_supervisor_judges_as_the_one_before(
    tmp_path_factory: Any, events: list[tuple[int, str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    reader = write(folder, events)
    replayed, recorded = OutputReader(PLAN), RunState(PLAN)
    for event in journal_events(folder / JOURNAL):
        recorded.add(event)
        replayed.replay(event)
    assert replayed.unrecorded == []
    ranks = [rank for rank, _, _ in events]
    assert recorded.received == {rank: ranks.count(rank) for rank in set(ranks)}
    assert recorded.missing == 0
    assert end(replayed) == end(reader)


def test_output_that_says_nothing_is_not_judged_again(tmp_path: Path) -> None:
    write(tmp_path, [(1, "step 1\nstep 2\nstep 3", True)] * 500 + [(0, "# a table", True)])
    judged = [vars(event)["judged"] for event in journal_events(tmp_path / JOURNAL)]
    assert judged == [False] * 500 + [True]


DONE = Verdict("done", 0, None, "the master is done")


def gated() -> LaunchPlan:
    """A run of two nodes that must use EFA, show it, and reach a bandwidth."""
    case = Case(1, "all_reduce", "all_reduce", min_bytes=8, max_bytes=32)
    gate = Gate(cases=(0,), size=16, busbw=100.0, title="all_reduce 16 B", source="the run file")
    return bare_plan(
        [bare_node(0), bare_node(1)],
        NetworkPlan(preset="efa", promises="efa", interfaces=4, verify="require"),
        sweep=Sweep(cases=(case,), gates=(gate,)),
    )


EFA = [
    f"node{rank}:{rank}7:7 [0] NCCL INFO {words}"
    for rank in (0, 1)
    for words in (
        "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)",
        "Using network Libfabric",
        "Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Libfabric/0/GDRDMA",
    )
]
BROKEN = [
    "node1: Test NCCL failure common.cu:217 'unhandled system error / '",
    "gpuctl: in a pipe of entry 1 of the commands, part 1 of 2 ended with 1",
]


@pytest.mark.parametrize(
    "texts",
    [
        EFA,
        table(row(8, 1), row(16), row(32), footer="1 FAILED"),
        table(row(8), row(16), row(32)),
        [*EFA, *table(row(8, 1), row(16), row(32), footer="1 FAILED")],
        BROKEN,
        [*EFA, *BROKEN],
    ],
    ids=["efa", "wrong data", "gate", "efa and wrong data", "failed test", "efa and failed test"],
)
def test_verdict_stays_after_the_output_was_removed_and_the_supervisor_was_killed(
    texts: list[str],
) -> None:
    reader = OutputReader(gated())
    journal: list[Event] = []
    for text in texts:
        journal += reader.read(Output(0, "stdout", text))
    findings = (NetworkSeen, OutputJudged, GateJudged)
    told = [event for event in journal if isinstance(event, findings)]
    assert told
    for removed in range(len(texts) + 1):
        resumed, outputs = OutputReader(gated()), 0
        for event in journal:
            outputs += isinstance(event, Output)
            is_removed = isinstance(event, Output) and outputs <= removed
            gone = OutputDropped(0, 9, (DroppedOutput(0, size=9, since=7.0, until=7.0),))
            resumed.replay(gone if is_removed else event)
        events, verdict = resumed.end(DONE)
        ended = OutputReader(gated())
        for text in texts:
            ended.read(Output(0, "stdout", text))
        expected, right = ended.end(DONE)
        assert verdict == right
        again = [event for event in events if isinstance(event, findings)]
        assert again == [event for event in expected if isinstance(event, findings)]
