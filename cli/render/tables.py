"""nccl-tests' tables as text: both halves of every row, with title and footer."""

import csv
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING

from config.folded_names import fold
from config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cli.output import Output
    from engine.contract.table import Facts, Timing
    from operations.results import KeptFinding, Table

DROP = ("algbw\nGB/s", "op", "type")
"""The columns that a narrow terminal lacks, the first of them first, each of both halves.

Size and time have algbw in them.
"""


def table_lines(table: "Table", node: str, out: "Output") -> list[str]:
    """Return the lines of the table that `node` printed: title, rows and footer."""
    halves = [half for row in table.rows for half in (row.out_of_place, row.in_place)]
    differences = any(half is not None and half.error is not None for half in halves)
    bandwidths = ("algbw\nGB/s", "busbw\nGB/s", "error" if differences else "wrong")
    halves_head = ("out-of-place\nus", *bandwidths, "in-place\nus", *bandwidths)
    head = ("size\nbytes", "type", "op", *halves_head)
    rows = []
    for row in table.rows:
        op = row.redop if row.redop not in (None, "none") else ""
        texts = (_half(half, table.facts.is_checked) for half in (row.out_of_place, row.in_place))
        rows.append((str(row.size), row.dtype, op, *chain.from_iterable(texts)))
    lines = out.table(head, rows, right=head, drop=DROP)
    case = [f"Case {known.number}: {known.title}"] if (known := table.facts.case) else []
    return [*case, _title(table.facts, node), *lines, *_footer(table.facts)]


def transport_lines(findings: "Iterable[KeptFinding]", names: "Sequence[str]") -> list[str]:
    """Return the transport that NCCL's lines showed, with folded nodes; and other findings."""
    of_text: dict[str, list[str]] = {}
    lines = []
    for finding in findings:
        name = names[finding.rank] if finding.rank < len(names) else f"node number {finding.rank}"
        if (
            finding.kind == "network_seen"
            and finding.level == "proof"
            and finding.text.startswith(name)
        ):
            of_text.setdefault(finding.text.removeprefix(name), []).append(name)
        else:
            lines.append(f"{finding.level.capitalize()}: {finding.text}")
    proofs = [f"{fold(nodes)}{text}" for text, nodes in of_text.items()]
    return [f"Transport: {'; '.join(proofs) or 'NCCL printed nothing that shows it'}", *lines]


def _title(facts: "Facts", node: str) -> str:
    versions = (
        ("nccl-tests", facts.nccl_tests),
        ("NCCL", facts.nccl),
        ("plugin", facts.plugin),
        ("CUDA driver", facts.driver),
    )
    parts = [f"{name} {version}" for name, version in versions if version]
    if facts.ranks:
        hosts = len({rank.host for rank in facts.ranks})
        parts.insert(0, f"{counted(len(facts.ranks), 'rank')} on {counted(hosts, 'host')}")
    return f"{facts.collective} on {node}" + (f": {', '.join(parts)}" if parts else "")


def _footer(facts: "Facts") -> list[str]:
    lines = []
    if facts.average_busbw is not None:
        lines.append(f"Average bus bandwidth: {facts.average_busbw:g} GB/s")
    if facts.out_of_bounds:
        lines.append(f"Out of bounds values: {facts.out_of_bounds}, failed")
    if facts.ended_at is not None:
        lines.append(f"Incomplete: it ended at {facts.ended_at} bytes")
    if facts.lost:
        lines.append(f"Rows that could not be read: {facts.lost}")
    lines += [gate.text[:1].upper() + gate.text[1:] for gate in facts.gates]
    return lines


def _half(half: "Timing | None", is_checked: bool) -> tuple[str, ...]:
    """Return the cells of time, both bandwidths and wrong values."""
    if half is None:
        return ("-",) * 4
    if half.error is not None and is_checked:
        wrong = f"{half.error:g}"
    else:
        wrong = "unchecked" if half.wrong is None or not is_checked else str(half.wrong)
    return f"{half.time_us:.1f}", f"{half.algbw:.2f}", f"{half.busbw:.2f}", wrong


def csv_text(run_id: str, tables: "Iterable[Table]") -> str:
    """Return the tables as CSV with a head, a line for each half; an unknown value is empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    lines = [_csv_line(_COLUMNS)]
    for number, table in enumerate(tables):
        facts = table.facts
        known = (facts.nccl_tests, facts.nccl, facts.plugin, facts.driver)
        ranks = (len(facts.ranks) or "", len({rank.host for rank in facts.ranks}) or "")
        for row in table.rows:
            of_row = (row.size, row.count, row.dtype, row.redop, row.root)
            for name, half in (("out-of-place", row.out_of_place), ("in-place", row.in_place)):
                if half is None:
                    continue
                figures = (half.time_us, half.algbw, half.busbw, half.wrong, half.error)
                begin = (run_id, number, facts.rank, facts.collective)
                lines.append(_csv_line((*begin, *known, *ranks, *of_row, name, *figures)))
    return "\n".join(lines)


def _csv_line(cells: "Sequence[object]") -> str:
    """Return a line of CSV in which no text is a formula, as OWASP describes.

    In some countries spreadsheets also split cells at `;`, which quotes prevent
    (https://owasp.org/www-community/attacks/CSV_Injection, 2026-11-26).
    """
    texts = [cell for cell in cells if isinstance(cell, str)]
    is_plain = not any(text.startswith(_FORMULA) or ";" in text or "\t" in text for text in texts)
    safe = [
        f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
        for cell in cells
    ]
    line = StringIO()
    if is_plain:
        csv.writer(line, lineterminator="").writerow(safe)
    else:
        csv.writer(line, lineterminator="", quoting=csv.QUOTE_NONNUMERIC).writerow(safe)
    return line.getvalue()


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The beginnings of a formula; the last four are the first ones in full width."""


_COLUMNS = (
    "run",
    "table",
    "node",
    "collective",
    "nccl_tests",
    "nccl",
    "plugin",
    "driver",
    "ranks",
    "hosts",
    "size",
    "count",
    "dtype",
    "redop",
    "root",
    "half",
    "time_us",
    "algbw",
    "busbw",
    "wrong",
    "error",
)
