"""nccl-tests' tables as text: both halves of every row, and what is known of the table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.history import KeptFinding
    from engine.nccl_tests import Facts, Table, Timing

_HALF = f"{'time':>10} {'algbw':>8} {'busbw':>8} {{wrong:>9}}"
_HALF_UNITS = f"{'us':>10} {'GB/s':>8} {'GB/s':>8} {'':>9}"
_WIDTH = 38  # of a half


def table_lines(table: "Table", node: str) -> list[str]:
    """The table that `node` printed: what it is, its rows, and its footer."""
    halves = [half for row in table.rows for half in (row.out_of_place, row.in_place)]
    differences = any(half is not None and half.error is not None for half in halves)
    half = _HALF.format(wrong="error" if differences else "wrong")
    lines = [
        _title(table.facts, node),
        f"{'':>26}  {'out-of-place':^{_WIDTH}}  {'in-place':^{_WIDTH}}",
        f"{'size':>12} {'type':>8} {'op':>4}  {half}  {half}",
        f"{'bytes':>12} {'':>8} {'':>4}  {_HALF_UNITS}  {_HALF_UNITS}",
    ]
    for row in table.rows:
        op = row.redop if row.redop not in (None, "none") else ""
        texts = (_half(one, table.facts.is_checked) for one in (row.out_of_place, row.in_place))
        lines.append(f"{row.size:>12} {row.dtype:>8} {op:>4}  {'  '.join(texts)}")
    return [*map(str.rstrip, lines), *_footer(table.facts)]


def transport_lines(findings: "Iterable[KeptFinding]", names: "list[str]") -> list[str]:
    """What NCCL's lines showed of the network, nodes folded; and what else output showed."""
    from nodes.names import fold

    of_text: dict[str, list[str]] = {}
    lines = []
    for one in findings:
        name = names[one.rank] if one.rank < len(names) else f"rank {one.rank}"
        if one.kind == "network_seen" and one.level == "proof" and one.text.startswith(name):
            of_text.setdefault(one.text.removeprefix(name), []).append(name)
        else:
            lines.append(f"{one.level.capitalize()}: {one.text}")
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
        ranks = "1 rank" if len(facts.ranks) == 1 else f"{len(facts.ranks)} ranks"
        parts.insert(0, f"{ranks} on {hosts} {'host' if hosts == 1 else 'hosts'}")
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
    return lines


def _half(half: "Timing | None", is_checked: bool) -> str:
    if half is None:
        return f"{'-':>10} {'-':>8} {'-':>8} {'-':>9}"
    if half.error is not None and is_checked:
        wrong = f"{half.error:g}"
    else:
        wrong = "unchecked" if half.wrong is None or not is_checked else str(half.wrong)
    return f"{half.time_us:>10.1f} {half.algbw:>8.2f} {half.busbw:>8.2f} {wrong:>9}"
