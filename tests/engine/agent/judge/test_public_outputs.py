"""Tables and logs of other people, in every format since 2021: read, and judged as they deserve."""

from typing import Any

import pytest

from engine.agent.judge.output_checks import Numbers
from engine.agent.judge.rdma_check import Proof
from engine.agent.judge.tables import TableReader
from engine.contract.plan import LaunchPlan, NetworkPlan
from engine.contract.table import Timing
from tests.engine.bare_plans import bare_node, bare_plan
from tests.engine.public_logs import LOGS, PublicLog
from tests.engine.public_tables import TABLES, PublicTable

NODE = bare_node(0, "10.0.0.5")


def plan(**network: Any) -> LaunchPlan:
    return bare_plan([NODE], NetworkPlan(**network))


def _figures(half: Timing | None) -> tuple[float, float, float, float | None]:
    assert half is not None
    last = half.wrong if half.error is None else half.error
    return (half.time_us, half.algbw, half.busbw, last)


def test_there_are_enough_of_them() -> None:
    assert len({table.source for table in TABLES}) >= 30
    assert len(LOGS) >= 18


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.source.split("/", 3)[3])
def test_every_figure_is_read(table: PublicTable) -> None:
    reader = TableReader()
    for line in table.text():
        reader.feed(0, "stdout", line)
    rows = [row for one in reader.tables for row in one.rows]
    assert [
        (row.size, row.count, row.dtype, row.redop, row.root, _figures(row.out_of_place))
        for row in rows
    ] == [
        (line.size, line.count, line.dtype, line.redop, line.root, line.out) for line in table.lines
    ]
    assert [_figures(row.in_place) for row in rows] == [line.into for line in table.lines]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.source.split("/", 3)[3])
def test_only_what_is_wrong_is_a_finding(table: PublicTable) -> None:
    numbers = Numbers(plan())
    found = [one for line in table.text() for one in numbers.feed(0, "stdout", line)]
    assert tuple(one.text for one in found + numbers.final_findings()) == table.finds


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.source.split("/", 3)[3])
def test_logs_prove_what_they_prove(log: PublicLog) -> None:
    network = plan(promises=log.promise, interfaces=0, gpudirect=False).network
    proof = Proof(network, [NODE])
    found = []
    for line in log.lines:
        text = line.format("ip-10-0-0-5:4100:4200 [0] NCCL INFO ")
        found += proof.feed(0, text)
    found += proof.final_findings()
    for texts, level in ((log.proves, "proof"), (log.faults, "fault")):
        of_level = [one.text for one in found if one.level == level]
        assert len(of_level) == len(texts), found
        assert all(part in text for part, text in zip(texts, of_level, strict=True)), of_level
