"""Where readings of nccl-tests' tables end: numbers, versions, sizes, halves, JSON beside text."""

import json
from pathlib import Path

import pytest

from engine.agent.judge import table_rows
from engine.agent.judge.output_checks import size_text
from engine.agent.judge.table_rows import Shape, parse_fragment, parse_row
from engine.agent.judge.tables import ReadTable, TableReader, nccl_version, read_json
from engine.agent.node import nccl_json_files
from engine.contract.table import Row, Timing
from tests.engine.agent.judge.test_numbers import COLUMNS, FLAGS, document, row, table


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (8, "8 bytes"),
        (1023, "1023 bytes"),
        (1024, "1K (1024 bytes)"),
        (1025, "1025 bytes"),
        (3 << 10, "3K (3072 bytes)"),
        (64 << 20, "64M (67108864 bytes)"),
        (1 << 30, "1G (1073741824 bytes)"),
    ],
)
def test_sizes_are_written_as_flags_where_that_is_exact(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("code", "version"),
    [(2402, "2.4.2"), (2708, "2.7.8"), (2809, "2.8.9"), (20903, "2.9.3"), (22707, "2.27.7")],
)
def test_versions_of_nccl(code: int, version: str) -> None:
    assert nccl_version(code) == version


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        ({}, None),
        ({"min_bytes": 8, "max_bytes": 32, "step": 2, "factor": 1}, (8, 16, 32)),
        ({"min_bytes": 8, "max_bytes": 31, "step": 2, "factor": 1}, (8, 16)),
        ({"min_bytes": 8, "max_bytes": 32, "step": 1, "factor": 1}, None),
        ({"min_bytes": 0, "max_bytes": 32, "step": 2, "factor": 1}, (0,)),
        ({"min_bytes": 0, "max_bytes": 2, "step": 1, "factor": 0}, (0, 1, 2)),
        ({"min_bytes": 8, "max_bytes": 8, "step": 0, "factor": 0}, None),
        # Nobody counts a thousand million sizes.
        ({"min_bytes": 8, "max_bytes": 8 << 30, "step": 8, "factor": 0}, None),
    ],
)
def test_sizes_that_a_header_announces(
    flags: dict[str, int], sizes: tuple[int, ...] | None
) -> None:
    assert ReadTable(0, flags=flags).sizes() == sizes


HEAD = "  16   4   float   sum   -1"
WRONG = Shape(counts_wrong=True)
GOOD = Timing(9, 2, 3, 0), Timing(8, 2, 4, 0)


@pytest.mark.parametrize(
    ("text", "shape", "halves"),
    [
        (f"{HEAD} 9 2 3 1 8 2 4 0", WRONG, (Timing(9, 2, 3, 1), Timing(8, 2, 4, 0))),
        (f"{HEAD} 9 2 3 N/A 8 2 4 N/A", WRONG, (Timing(9, 2, 3, None), Timing(8, 2, 4, None))),
        (f"{HEAD} 9 2 3 1 8 2 4 0", Shape(counts_wrong=False),
         (Timing(9, 2, 3, None, 1), Timing(8, 2, 4, None, 0))),
        (f"{HEAD} 9 2 3 1e-5 8 2 4 0", Shape(), (Timing(9, 2, 3, None, 1e-5), Timing(8, 2, 4, 0))),
        (f"{HEAD} 9 2 3 1e+00 8 2 4 1", Shape(), (Timing(9, 2, 3, None, 1), Timing(8, 2, 4, 1))),
        (f"{HEAD} 9 2 3 9e+05 8 2 4 1e+06", Shape(),
         (Timing(9, 2, 3, None, 900000), Timing(8, 2, 4, 1000000))),
        # One half alone, behind blanks in the place of the other.
        (f"{HEAD}{' ' * 34}8 2 4 5", WRONG, (None, Timing(8, 2, 4, 5))),
        (f"{HEAD} 8 2 4 5", WRONG, None),
        # No number of wrong values.
        (f"{HEAD} 9 2 3 -1 8 2 4 0", WRONG, None),
        (f"{HEAD} 9 2 3 0.5 8 2 4 0", WRONG, None),
        (f"{HEAD} 9 2 3 x 8 2 4 0", WRONG, None),
        (f"{HEAD} 9 2 3 1 8 2 4", WRONG, None),
        (HEAD, WRONG, None),
        # The size is that of the elements, once or for every rank.
        ("  64   4   float   sum   -1 9 2 3 0 8 2 4 0", WRONG, GOOD),
        ("  0   0   float   sum   -1 9 2 3 0 8 2 4 0", WRONG, GOOD),
        ("  8   4   float   sum   -1 9 2 3 0 8 2 4 0", WRONG, None),
        ("  24   4   float   sum   -1 9 2 3 0 8 2 4 0", WRONG, None),
    ],
)  # fmt: skip
def test_halves_of_a_row(
    text: str, shape: Shape, halves: tuple[Timing | None, Timing | None] | None
) -> None:
    found = parse_row(text, shape)
    assert (found and (found.out_of_place, found.in_place)) == halves


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        *((name, 1) for name in ("int8", "uint8", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2")),
        *((name, 2) for name in ("half", "bfloat16")),
        *((name, 4) for name in ("int32", "uint32", "float")),
        *((name, 8) for name in ("int64", "uint64", "double")),
    ],
)
def test_every_type_of_nccl_has_its_width(dtype: str, width: int) -> None:
    rest = "none -1 9 2 3 0 8 2 4 0"
    assert parse_row(f"{16 * width} 16 {dtype} {rest}") is not None
    assert parse_row(f"{17 * width} 16 {dtype} {rest}") is None


def test_a_row_that_is_torn_tells_its_size() -> None:
    cut = row(16).index("51.2") + 1  # in the middle of a number
    begun = parse_fragment(row(16)[:cut])
    assert begun is not None
    assert begun.size == 16
    for other in ("node0:1:2 [0] NCCL INFO Connected", "  indented", "", " "):
        assert begun.add(other, WRONG) is None
    whole = begun.add(row(16)[cut:], WRONG)
    assert whole == read(row(16))
    assert parse_fragment("node0:1:2 [0] NCCL INFO") is None


def read(text: str) -> Row:
    found = parse_row(text, WRONG)
    assert found is not None
    return found


def tables(*lines: str, programs: tuple[str, ...] = ()) -> list[ReadTable]:
    reader = TableReader(programs)
    for line in lines:
        reader.feed(0, "stdout", line, 7.0)
    return reader.tables


def test_what_a_launcher_prints_in_front_of_a_comment_is_no_part_of_it() -> None:
    lines = [f"rank 0 says {line}" for line in table(row(8), most=16) if line != COLUMNS]
    lines.insert(2, "rank 0 says # Reducing maxBytes to 8 due to memory limitation")
    (found,) = tables(*lines)
    assert (found.program, found.sizes()) == ("all_reduce_perf", (8,))
    assert (found.out_of_bounds, found.average_busbw, found.begun) == (
        0,
        3.5,
        "1970-01-01T00:00:07Z",
    )


@pytest.mark.parametrize(
    ("programs", "names"),
    [
        ((), ["", ""]),
        (("scatter_perf",), ["scatter_perf", "scatter_perf"]),
        (("scatter_perf", "gather_perf"), ["scatter_perf", "gather_perf"]),
        (("scatter_perf", "gather_perf", "scatter_perf"), ["scatter_perf", "gather_perf"]),
    ],
)
def test_tables_without_a_name_have_that_of_the_jobs_commands(
    programs: tuple[str, ...], names: list[str]
) -> None:
    one = [FLAGS.format(8, 8, 1), COLUMNS, row(8), "# Out of bounds values : 0 OK"]
    assert [found.program for found in tables(*one, *one, programs=programs)] == names


def reader(*lines: str) -> TableReader:
    reader = TableReader()
    for line in lines:
        reader.feed(0, "stdout", line)
    return reader


def test_json_is_more_exact_than_the_text_and_keeps_what_only_that_has() -> None:
    text = reader(*table(f"{row(8)} 2026-11-20 19:20:21", row(16), most=16))
    told = read_json(document(), 0)
    merged = text.merge(told)
    assert text.tables == [merged]
    assert [(one.at, one.out_of_place) for one in merged.rows] == [
        ("2026-11-20 19:20:21", told.rows[0].out_of_place),
        ("", told.rows[1].out_of_place),
    ]
    assert (merged.ranks, merged.nccl, merged.has_json) == (told.ranks, "2.28.9", True)


def test_json_with_fewer_rows_or_without_a_footer_takes_nothing_away() -> None:
    text = reader(*table(row(8), row(16), row(32)))
    told = read_json(document(), 0)
    told.ranks, told.out_of_bounds, told.average_busbw = [], None, None
    text.tables[0].ranks = ranks = read_json(document(), 0).ranks
    merged = text.merge(told)
    assert [one.size for one in merged.rows] == [8, 16, 32]
    assert (merged.ranks, merged.out_of_bounds, merged.average_busbw) == (ranks, 0, 3.5)
    assert (merged.flags["max_bytes"], merged.flags["graph"]) == (16, 0)


def test_json_of_another_program_or_a_second_document_is_a_table_of_its_own() -> None:
    text = reader(*table(row(8), row(16), most=16))
    text.merge(read_json({**document(), "args": ["/opt/all_gather_perf"]}, 0))
    text.merge(read_json(document(), 0))
    text.merge(read_json(document(), 0))
    assert [one.program for one in text.tables] == [
        *("all_reduce_perf", "all_gather_perf", "all_reduce_perf"),
    ]
    assert [one.number for one in text.tables] == [0, 1, 2]


def test_flags_of_json_have_the_names_of_the_header() -> None:
    flags = {
        **{"threads": 1, "gpus": 1, "min_bytes": 8, "max_bytes": 16, "step": 2, "factor": 1},
        **{"warmup": 5, "iterations": 20, "aggregated": 1, "checks": 1, "graph": 0},
    }
    assert read_json(document(), 0).flags == flags
    (text,) = tables(FLAGS.format(8, 16, 1))
    assert text.flags == flags
    by_bytes = document()
    by_bytes["config"]["step_bytes"] = by_bytes["config"].pop("step_factor") + 6
    assert read_json(by_bytes, 0).flags == {**flags, "step": 8, "factor": 0}
    (text,) = tables(FLAGS.format(8, 16, 1).replace("2(factor)", "8(bytes)"))
    assert text.flags == {**flags, "step": 8, "factor": 0}


@pytest.mark.parametrize(
    ("okay", "too_slow"), [("true", False), ("unchecked", False), ("false", True)]
)
def test_json_says_whether_the_bandwidth_was_reached(okay: str, too_slow: bool) -> None:
    told = document()
    told["average_bus_bandwidth"]["okay"] = okay
    assert read_json(told, 0).too_slow == too_slow


def test_a_document_of_more_than_half_a_mebibyte_is_left_to_the_text(tmp_path: Path) -> None:
    empty = len(json.dumps({"args": ""}))
    for number, size in enumerate((512 * 1024, 512 * 1024 + 1)):
        text = json.dumps({"args": "x" * (size - empty), "env": ["HOME=/root"]})
        (tmp_path / f"nccl-tests-{number}-x_perf.json").write_text(text)
    ((_, kept),) = nccl_json_files.collect(tmp_path)
    assert len(kept["args"]) == 512 * 1024 - empty
    assert list(tmp_path.iterdir()) == []


def test_what_stands_around_a_table_belongs_to_it() -> None:
    (found,) = tables(
        "node0:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)",
        FLAGS.format(8, 8, 1),
        COLUMNS,
        row(8),
        "node0:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0",
        "# Avg bus bandwidth    : 3.5 GB/s",  # the line before it is torn
        "# Collective test concluded: scatter_perf",
    )
    assert (found.plugin, found.nccl) == ("Libfabric (v10)", "2.28.9+cuda13.0")
    assert (found.program, found.collective) == ("scatter_perf", "scatter")
    assert (found.out_of_bounds, found.average_busbw, found.has_footer) == (None, 3.5, True)
    assert (found.ended_at, found.lost) == (None, 0)


@pytest.mark.parametrize(
    ("rows", "footer", "lost", "ended_at"),
    [
        ([], "0 OK", 3, None),
        ([8], "0 OK", 2, None),
        ([8, 16, 32], "0 OK", 0, None),
        ([8, 16, 32, 8, 16], "0 OK", 1, None),  # of the second of two cycles
        ([], None, 0, 8),
        ([8, 16], None, 0, 32),
        ([8, 16, 32], None, 0, None),
        ([8, 16, 32, 8], None, 0, 16),
    ],
)
def test_rows_that_are_missing(
    rows: list[int], footer: str | None, lost: int, ended_at: int | None
) -> None:
    (found,) = tables(*table(*map(row, rows), footer=footer))
    assert (found.lost, found.ended_at) == (lost, ended_at)


@pytest.mark.parametrize("dtype", sorted(table_rows._WIDTHS))
def test_a_row_of_every_type_is_read_among_many_lines(dtype: str) -> None:
    """The quick test of many lines at once must let none of them through."""
    reader = TableReader()
    assert reader.reads(0, "stdout", f"step 1\n        1024           256  {dtype}     sum\nstep 2")
    assert not reader.reads(0, "stdout", f"step 1\nloss of {dtype} 1024\nstep 2")


WHOLE = (
    "# nccl-tests version 2.17.4 nccl-headers=22707 nccl-library=22707",
    "# Collective test starting: all_reduce_perf_mpi",
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters:"
    " 1 validation: 0 graph: 0",
    "#",
    "# Using devices",
    "#  Rank  0 Group  0 Pid   4100 on ip-10-0-0-5 device  0 [0000:53:00] NVIDIA H100",
    COLUMNS,
    row(8).replace(" 0 ", " N/A "),
    "# Out of bounds values : 0 OK",
    "# Avg bus bandwidth    : 3.5",
    "#",
    "# Collective test concluded: all_reduce_perf_mpi",
)


@pytest.mark.parametrize(
    "lines",
    [
        WHOLE,
        [line.removeprefix("#") for line in WHOLE],  # cut -c2-
        [line.removeprefix("#").strip() for line in WHOLE],  # pasted into a document
        [line.replace("#", "") for line in WHOLE],  # tr -d '#'
        [f"[1,0]<stdout>:{line.removeprefix('#')}" for line in WHOLE],
    ],
)
def test_a_table_is_read_without_its_hashes(lines: list[str]) -> None:
    (found,) = tables(*lines)
    assert (found.nccl_tests, found.nccl, found.collective) == ("2.17.4", "2.27.7", "all_reduce")
    assert (found.average_busbw, found.out_of_bounds) == (3.5, 0)
    assert (found.is_checked, found.sizes()) == (False, (8,))
    assert [(rank.rank, rank.host) for rank in found.ranks] == [(0, "ip-10-0-0-5")]


@pytest.mark.parametrize(
    ("program", "collective"),
    [
        ("all_reduce_perf_mpi", "all_reduce"),
        ("sendrecv_perf-cuda12", "sendrecv"),
        ("alltoall_perf", "alltoall"),
    ],
)
def test_a_program_may_have_a_suffix(program: str, collective: str) -> None:
    (found,) = tables(f"# Collective test starting: {program}", FLAGS.format(8, 8, 1), row(8))
    assert found.collective == collective


NCCL = "node0:1:2 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("lines", "plugin"),
    [
        (["P2P plugin IBext_v8", "Using network IBext_v8"], "IBext_v8"),
        (["P2P plugin v9 IBext_v9", "Using network IBext_v9"], "IBext_v9"),
        (["NET/Plugin: Loaded net plugin Libfabric (v10)", "Using network Socket"], ""),
        (["NET/OFI Initializing aws-ofi-nccl 1.14.0", "Using network IB"], ""),
        (["Initialized NET plugin Libfabric", "Using network Libfabric"], "Libfabric"),
        (["Initialized NET plugin IB", "Using network IB"], ""),
        # Two ranks print by turns.
        (["P2P plugin IBext_v8", "Using network Socket", "P2P plugin IBext_v8"], ""),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_plugin_counts_if_its_network_is_used(
    lines: list[str], plugin: str, is_first: bool
) -> None:
    printed = [f"{NCCL}{line}" for line in lines]
    head = [FLAGS.format(8, 8, 1)]
    (found,) = tables(*(printed + head if is_first else head + printed), row(8))
    assert found.plugin == plugin
