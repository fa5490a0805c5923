"""Events about the tables of a run: what the head reads reaches a client once, whatever happens."""

import json
from dataclasses import replace

import pytest

from engine.agent.judge.output_checks import Numbers
from engine.agent.judge.output_reader import OutputReader
from engine.agent.judge.tables import TableEvents
from engine.contract.codec import from_json
from engine.contract.event import Event, to_line
from engine.contract.events import decode
from engine.contract.head_events import DroppedOutput, OutputDropped, OutputJudged, TableRead
from engine.contract.plan import LaunchPlan, NetworkPlan
from engine.contract.worker_events import NodeReady, Output, TableWritten
from engine.record.result import Table, TableCollector
from tests.engine.agent.judge.test_numbers import document, row, table
from tests.engine.bare_plans import bare_node, bare_plan
from tests.engine.read_output import DONE, TablesOfOutput

PLAN = bare_plan([bare_node(0), bare_node(1)])
RANKS = [
    f"#  Rank {rank:>2} Group  0 Pid   {4100 + rank} on ip-10-0-0-5 device  {rank}"
    " [0000:53:00] NVIDIA H100"
    for rank in range(4)
]
TEXTS = [
    *table(row(8), row(16))[:3],
    *RANKS,
    f"{row(8)}\n{row(16)}",
    "step 1",
    row(32),
    "# Out of bounds values : 0 OK",
    *table(row(8), row(16)[:40], footer=None),
    "\n".join(table(row(8), row(16), row(32))),
]


def printed(text: str, rank: int = 0, ends_line: bool = True) -> Output:
    return Output(rank, "stdout", text, ends_line, time=7.0)


def journal(plan: LaunchPlan = PLAN, texts: list[str] = TEXTS) -> list[Event]:
    """What the head records of the output, but for the end."""
    reader = OutputReader(plan)
    return [event for text in texts for event in reader.read(printed(text))]


def collected(events: list[Event]) -> tuple[Table, ...]:
    collector = TableCollector()
    for event in events:
        line = decode(json.loads(to_line(event)))  # as it travels
        assert line is not None
        collector.feed(line)
    return collector.tables


def whole(texts: list[str] = TEXTS) -> tuple[Table, ...]:
    """The tables of a run that nothing disturbs."""
    tables = TablesOfOutput(PLAN)
    for text in texts:
        tables.read(printed(text))
    tables.end()
    return tables.tables


def test_facts_and_ranks_are_not_repeated_with_every_row() -> None:
    read = [event for event in journal() if isinstance(event, TableRead) and event.table == 0]
    assert sum(len(event.ranks) for event in read) == len(RANKS)
    assert [(event.first_rank, len(event.ranks)) for event in read if event.ranks] == [
        (rank, 1) for rank in range(len(RANKS))
    ]
    rows = [(event.first_row, len(event.rows), event.facts) for event in read if event.rows]
    assert rows == [(0, 2, None), (2, 1, None)]
    (first, *_) = whole()
    assert [rank.rank for rank in first.facts.ranks] == [0, 1, 2, 3]
    assert [one.size for one in first.rows] == [8, 16, 32]


def test_a_table_knows_where_it_ended_and_when_it_began() -> None:
    ends = [one.facts.ended_at for one in whole()]
    assert ends == [None, 16, None]
    assert {one.facts.begun for one in whole()} == {"1970-01-01T00:00:07Z"}


def test_a_killed_supervisor_loses_and_doubles_no_table() -> None:
    """Killed after each event: the next one records what is missing, and reads on."""
    events = journal()
    for cut in range(len(events) + 1):
        resumed, kept = OutputReader(PLAN), events[:cut]
        for event in kept:
            resumed.replay(event)
        kept += resumed.unrecorded
        rest = TEXTS[sum(isinstance(event, Output) for event in kept) :]
        kept += [event for text in rest for event in resumed.read(printed(text))]
        kept += resumed.end(DONE)[0]
        assert collected(kept) == whole()
        reads = [event for event in kept if isinstance(event, TableRead)]
        assert len(reads) == len(set(map(str, reads)))
        facts = [(event.table, event.facts) for event in reads if event.facts is not None]
        assert len(facts) == len(set(map(str, facts)))


def test_a_supervisor_that_was_killed_at_the_end_records_no_table_twice() -> None:
    events = journal()
    reader = OutputReader(PLAN)
    for event in events:
        reader.replay(event)
    final, _ = reader.end(DONE)
    for cut in range(len(final) + 1):
        resumed = OutputReader(PLAN)
        for event in (*events, *final[:cut]):
            resumed.replay(event)
        assert resumed.end(DONE)[0] == final[cut:]


@pytest.mark.parametrize("dropped", range(len(TEXTS)))
def test_tables_stay_when_their_output_was_removed_before_a_supervisor_was_killed(
    dropped: int,
) -> None:
    """The journal's budget removes the oldest output, and nothing else."""
    gone = DroppedOutput(rank=0, size=1, since=1.0, until=2.0)
    kept: list[Event] = []
    outputs = 0
    for event in journal():
        if isinstance(event, Output):
            outputs += 1
            if outputs <= dropped:
                kept.append(OutputDropped(0, 9, (gone,)))
                continue
        kept.append(event)
    resumed = OutputReader(PLAN)
    for event in kept:
        resumed.replay(event)
    kept += resumed.unrecorded
    more = [row(8), "\n".join(table(row(8), row(16), row(32)))]
    kept += [event for text in more for event in resumed.read(printed(text))]
    before, after = whole(), collected(kept)
    assert [(one.rows, one.facts.ranks) for one in after[: len(before)]] == [
        (one.rows, one.facts.ranks) for one in before
    ]
    assert [len(one.rows) for one in after[len(before) :]] == [1, 3]


def test_tables_are_read_where_nothing_is_verified() -> None:
    plan = replace(PLAN, network=NetworkPlan(verify="off"))
    wrong = table(row(8, 1), row(16), row(32), footer="1 FAILED")
    events = journal(plan, wrong)
    assert not [event for event in events if isinstance(event, OutputJudged)]
    ((found,),) = [collected(events)]
    assert [one.size for one in found.rows] == [8, 16, 32]


def test_a_row_behind_a_progress_bar_is_read_as_a_terminal_shows_it() -> None:
    tables = TablesOfOutput(PLAN)
    for text, ends in (("\r 10%", False), ("\r 20%\r", False), (f"{row(8)}\r", True)):
        tables.read(printed(text, ends_line=ends))
    assert [one.size for one in tables.tables[0].rows] == [8]


def test_json_of_an_early_table_takes_the_place_of_its_rows() -> None:
    """The head has released them: a run may print very many tables."""
    texts = table(f"{row(8)} 2026-11-20 19:20:21", row(16), most=16)
    tables = TablesOfOutput(PLAN)
    for text in (*texts, *table(row(8)), *table(row(8))):
        tables.read(printed(text))
    assert tables.read(TableWritten(0, document())) == (0,)
    found = tables.tables[0]
    assert (found.facts.from_json, len(found.facts.ranks)) == (True, 1)
    assert [(one.size, one.at) for one in found.rows] == [(8, "2026-11-20 19:20:21"), (16, "")]
    assert [one.out_of_place and one.out_of_place.iterations for one in found.rows] == [
        (1.0, 2.0, 2.0, 3.5)
    ] * 2


def test_rows_and_ranks_are_held_until_the_next_table_begins() -> None:
    numbers = Numbers(PLAN)
    events = TableEvents(PLAN, numbers.reader)
    for text in [*table(row(8)), *RANKS] * 3:
        numbers.feed(0, "stdout", text)
        events.changes()
    held = [(len(one.rows), len(one.ranks)) for one in numbers.reader.tables]
    assert held == [(0, 0), (0, 0), (1, 4)]


def test_what_is_recorded_of_tables_is_bounded() -> None:
    numbers = Numbers(PLAN)
    tables = TableEvents(PLAN, numbers.reader, most_rows=20, most_ranks=6)
    events: list[Event] = []
    for text in [*table(row(8), row(16)), *RANKS] * 10:
        numbers.feed(0, "stdout", text)
        events += tables.changes()
    reads = [event for event in events if isinstance(event, TableRead)]
    assert sum(len(event.rows) for event in reads) + len({event.table for event in reads}) == 21
    assert sum(len(event.ranks) for event in reads) == 6
    warnings = [event for event in events if isinstance(event, OutputJudged)]
    assert [(event.level, event.text) for event in warnings if "ranks" in event.text] == [
        ("warning", "the run's tables have more than 6 ranks: the rest is not kept")
    ]


@pytest.mark.parametrize("moment", [1e300, -1e300, float("inf"), float("nan")])
def test_a_time_that_is_none_ends_no_supervisor(moment: float) -> None:
    reader = OutputReader(PLAN)
    (_, read) = reader.read(replace(printed(row(8)), time=moment))
    assert isinstance(read, TableRead)
    assert read.facts is not None
    assert read.facts.begun is None


@pytest.mark.parametrize("place", ["nthreads", "warmup_iters", "minimum_bytes"])
@pytest.mark.parametrize("value", ["many", [], None, 1 << 80, float("inf")])
def test_json_with_other_values_is_left_to_the_text(place: str, value: object) -> None:
    written = document()
    written["config"][place] = value
    event = TableWritten(0, written)
    assert OutputReader(PLAN).read(event) == [event]


def test_an_event_that_adds_to_an_unknown_table_is_left_out() -> None:
    collector = TableCollector()
    late = from_json(
        TableRead,
        {
            **{"table": 3, "case": 0, "facts": None, "first_rank": 0, "ranks": []},
            **{"first_row": 0, "rows": [], "ended_at": None},
        },
    )
    assert (collector.feed(late), collector.feed(NodeReady(0)), collector.tables) == (
        None,
        None,
        (),
    )
