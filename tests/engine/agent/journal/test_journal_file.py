"""A journal in pieces: compressed, within a budget, and read from every offset."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import (
    JOURNAL,
    JournalFile,
    JournalReader,
    end_of_line,
    kind_of,
)
from engine.agent.journal.rotating_file import PieceFile, pieces
from engine.contract.head_events import OutputDropped
from engine.contract.worker_events import NodeReady, Output
from engine.record.events import parse_event
from engine.record.journal_copy import JournalCopy, recorded_events
from tests.engine.bare_events import STARTED, printed

SIZE = 400
"""Bytes of a piece in these tests, a few lines."""


def event(kind: str, number: int, rank: int = 0) -> bytes:
    fields: dict[str, Any] = {"kind": kind, "time": float(number), "rank": rank}
    if kind == "output":
        fields.update(stream="stdout", text=f"line {number:04}", ends_line=True, offset=0)
    return json.dumps(fields).encode() + b"\n"


def write(path: Path, lines: list[bytes], budget: int = 1 << 30) -> None:
    file = JournalFile(path, budget, SIZE)
    for line in lines:
        file.append_line(line)
    file.close()


def read(path: Path, offset: int = 0) -> list[bytes]:
    reader = JournalReader(path, offset)
    lines = list(reader.read())
    reader.close()
    return lines


OUTPUT = [event("output", number, number % 2) for number in range(60)]
MIXED = [*OUTPUT[:30], event("node_ready", 30), *OUTPUT[31:45], event("node_exited", 45)]


def test_complete_pieces_but_the_first_are_compressed(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    write(path, OUTPUT)
    first, *middle, last = pieces(path)
    assert first == (0, path)
    assert [piece.path.suffix for piece in middle] == [".gz"] * len(middle)
    assert len(middle) > 5
    assert last.path == tmp_path / f"journal-{last.start:015}.jsonl"
    with gzip.open(middle[0].path) as file:
        assert path.read_bytes() + file.read() == b"".join(OUTPUT)[: middle[1].start]
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o600}


def test_every_offset_of_a_line_can_be_read_from(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    write(path, OUTPUT)
    offset = 0
    for number, line in enumerate(OUTPUT):
        assert read(path, offset) == OUTPUT[number:]
        offset += len(line)
    assert read(path, offset) == []


def test_a_journal_is_continued(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    write(path, OUTPUT[:40])
    newest = pieces(path)[-1].path
    newest.write_bytes(newest.read_bytes() + b'{"kind": "outp')  # the writer was killed
    packed = pieces(path)[1].path
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()  # it was killed before the piece was compressed
    (tmp_path / f"{packed.name}.1.tmp").touch()
    file = JournalFile(path, 1 << 30, SIZE)
    file.cut()
    for line in OUTPUT[40:]:
        file.append_line(line)
    file.close()
    assert read(path) == OUTPUT
    assert pieces(path)[1].path.suffix == ".gz"
    assert not list(tmp_path.glob("*.tmp"))


def test_a_budget_removes_old_output_and_says_what(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    write(path, MIXED, budget=1)
    first = path.read_bytes().splitlines(keepends=True)
    after = MIXED.index(event("node_ready", 30))
    lines = read(path)
    assert lines[: len(first)] == first == MIXED[: len(first)]
    before, ready, rest, *last = lines[len(first) :]
    assert ready == MIXED[after]
    assert last == MIXED[-len(last) :]
    assert event("node_exited", 45) in last
    gaps = [json.loads(line) for line in (before, rest)]
    removed = [MIXED[len(first) : after], MIXED[after + 1 : -len(last)]]
    for gap, output in zip(gaps, removed, strict=True):
        assert gap["kind"] == "output_dropped"
        assert gap["end"] - gap["start"] == len(b"".join(output))
        for one in gap["ranks"]:
            times = [e["time"] for e in map(json.loads, output) if e["rank"] == one["rank"]]
            assert (one["since"], one["until"]) == (times[0], times[-1])
            assert one["size"] == len("line 0000\n") * len(times)
    assert len(pieces(path)) == 3  # what was removed is one piece


def test_whoever_has_a_part_of_what_was_removed_gets_the_rest(tmp_path: Path) -> None:
    whole, thin = tmp_path / "whole" / JOURNAL, tmp_path / "thin" / JOURNAL
    for path, budget in ((whole, 1 << 30), (thin, 1)):
        path.parent.mkdir()
        write(path, MIXED, budget)
    gap = json.loads(next(line for line in read(thin) if b"output_dropped" in line))
    middle = end_of_line(gap["start"], read(whole, gap["start"])[0])
    line, *others = read(thin, middle)
    rest = json.loads(line)
    assert (rest["start"], rest["end"]) == (middle, gap["end"])
    share = (gap["end"] - middle) / (gap["end"] - gap["start"])
    assert [one["size"] for one in rest["ranks"]] == [
        round(one["size"] * share) for one in gap["ranks"]
    ]
    assert others == read(thin, gap["end"])


def test_a_reader_goes_on_while_pieces_are_compressed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    write(path, OUTPUT[:8])
    reader = JournalReader(path)
    lines = list(reader.read())
    assert lines == OUTPUT[:8]
    write(path, OUTPUT[8:12])
    lines += reader.read()
    assert lines == OUTPUT[:12]
    write(path, OUTPUT[12:] + MIXED, budget=1)
    *rest, last = reader.read()
    assert last == MIXED[-1]
    assert [line for line in rest if line.startswith(b'{"kind": "node')] == [
        event("node_ready", 30)
    ]
    reader.close()


def test_a_journal_that_was_moved_away_has_no_more_lines(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    write(path, OUTPUT[:2])
    reader = JournalReader(path)
    assert list(reader.read()) == OUTPUT[:2]
    path.rename(tmp_path / "elsewhere")
    assert list(reader.read()) == []
    (tmp_path / "elsewhere").rename(path)
    write(path, OUTPUT[2:])
    assert list(reader.read()) == OUTPUT[2:]
    reader.close()


KINDS = st.lists(st.sampled_from(["output", "output", "output", "node_ready"]), max_size=60)


@settings(max_examples=40)
@given(kinds=KINDS, budgets=st.lists(st.sampled_from([1, 900, 1 << 30]), max_size=4), at=st.data())
def test_whatever_is_removed_offsets_and_other_events_stay(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: list[str],
    budgets: list[int],
    at: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("journal") / JOURNAL
    lines = [event(kind, number) for number, kind in enumerate(kinds)]
    parts = [1 << 30, *budgets]
    for number, budget in enumerate(parts):  # a writer each, as after a restart
        write(path, lines[number :: len(parts)], budget)
    order = [line for number in range(len(parts)) for line in lines[number :: len(parts)]]
    offsets = [0]
    for line in order:
        offsets.append(offsets[-1] + len(line))
    start = at.draw(st.sampled_from(range(len(offsets))))
    assert (
        "".join(
            described(
                read(path, offsets[start]), offsets[start], dict(zip(offsets, order, strict=False))
            )
        )
        == ""
    )


def described(lines: list[bytes], offset: int, written: dict[int, bytes]) -> Iterator[str]:
    """Say where the lines are not those that were written from `offset` on, without output."""
    for line in lines:
        end = end_of_line(offset, line)
        if b"output_dropped" in line:
            lost = [text for at, text in written.items() if offset <= at < end]
            if any(text.startswith(b'{"kind": "node_ready"') for text in lost):
                yield f"an event was removed at {offset}"
        elif line != written[offset]:
            yield f"another line at {offset}"
        offset = end
    if offset != sum(map(len, written.values())):
        yield f"the end is at {offset}"


def test_a_copy_has_the_offsets_of_the_head(tmp_path: Path) -> None:
    """The client copies, is killed, and follows on after the head removed output."""
    head = tmp_path / "head" / JOURNAL
    head.parent.mkdir()
    write(head, MIXED[:20])
    copy = JournalCopy(tmp_path, "job-000001", SIZE)
    for line in read(head):
        copy.append(line.decode().rstrip("\n"))
    assert copy.offset == len(b"".join(MIXED[:20]))
    write(head, MIXED[20:], budget=1)
    again = JournalCopy(tmp_path, "job-000001", SIZE)
    for line in read(head, again.offset):
        again.append(line.decode().rstrip("\n"))
    assert again.offset == len(b"".join(MIXED))
    again.close()
    assert JournalCopy(tmp_path, "job-000001", SIZE).offset == again.offset
    events = [parse_event(line) for line in read(tmp_path / "job-000001" / JOURNAL)]
    texts = [one.text for one in events if isinstance(one, Output)]
    assert texts[:20] == [f"line {number:04}" for number in range(20)]
    assert sum(isinstance(one, OutputDropped) for one in events) == 2


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    log = PieceFile(path, 3 * SIZE, SIZE)
    for line in OUTPUT:
        log.append(line)
    log.close()
    kept = pieces(path)
    assert (kept[0].start, kept[0].path) == (0, path)
    assert kept[1].start > SIZE + len(OUTPUT[0])
    assert log.offset == len(b"".join(OUTPUT))
    last = kept[-1]
    assert last.path.read_bytes() == b"".join(OUTPUT)[last.start :]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"kind": "run_finished", "time": 1.0}', "run_finished"),
        (b'{"time":1.0,"kind":"powering_off"}', "powering_off"),
        (b'{"kind": "output", "text": "\\"kind\\": \\"run_finished\\""}', ""),
        (b'{"kind": "output", "text": "", "x": {"kind": "run_finished"}}', ""),
        (b'{"kind": ["run_finished"]}', ""),
        (b'"run_finished"', ""),
        (b'{"kind": "run_finished"', ""),
    ],
)
def test_a_lines_kind_does_not_depend_on_how_its_json_is_laid_out(line: bytes, kind: str) -> None:
    assert kind_of(line, "run_finished", "powering_off") == kind


def test_output_in_any_layout_of_json_is_removed(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": "x" * 100, "rank": 0, "time": 1.0, "kind": "output"}).encode() + b"\n"
        for _ in range(100)
    ]
    file = JournalFile(tmp_path / JOURNAL, 3_000, 1_000)
    for line in lines:
        file.append_line(line)
    file.close()
    assert {json.loads(line)["kind"] for line in read(tmp_path / JOURNAL)} == {
        "output",
        "output_dropped",
    }


def test_a_head_whose_job_prints_without_end_stays_within_its_budget(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL, budget=60_000, piece=20_000)
    journal.append(STARTED)
    for number in range(3000):
        journal.append(printed(f"{number} {number**70}"))
    journal.append(NodeReady(0))
    journal.close()
    size = sum(piece.path.stat().st_size for piece in pieces(tmp_path / JOURNAL))
    assert size < 60_000 + 2 * 20_000
    kinds = [json.loads(line)["kind"] for line in read(tmp_path / JOURNAL)]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "node_ready"
    assert kinds.count("output_dropped") == 1


def test_a_damaged_piece_is_reported(tmp_path: Path) -> None:
    from config.errors import RunError

    path = tmp_path / "job-000001" / JOURNAL
    path.parent.mkdir()
    write(path, OUTPUT)
    packed = pieces(path)[1].path
    packed.write_bytes(packed.read_bytes()[:40])
    with pytest.raises(RunError, match=r"journal\.jsonl is damaged: .*; remove the file"):
        list(recorded_events(tmp_path, "job-000001"))
