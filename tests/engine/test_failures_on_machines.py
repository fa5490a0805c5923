"""Rows of docs/failures.md that only machines can show: code, reason, nothing left."""

import re
from pathlib import Path

import pytest

from nodes.inventory import Inventory
from tests.engine.failure_rows import ROWS, Row, show
from tests.engine.machines import assert_nothing_left, execute, job, output

pytestmark = pytest.mark.lab

LIMIT = "systemctl set-property --runtime gpuctl-run-$GPUCTL_RUN_ID-1.service MemoryMax=60M"


def test_a_unit_with_a_memory_limit(inventory: Inventory, tmp_path: Path) -> None:
    """The machine has no kernel log of its own: the control group counts the kill."""
    eat = f"{LIMIT}; python3 -c 'bytearray(300 << 20)'"
    command = f"if [ $DSTACK_NODE_RANK = 1 ]; then {eat}; else sleep 1000; fi"
    result, events = execute(inventory, job(inventory, command), tmp_path)
    assert re.fullmatch(
        r"rank 1 \(node1\): killed by SIGKILL \(137\): the kernel killed .* because .*",
        result.reason,
    ), output(events, 1)
    assert (result.status, result.exit_code) == ("failed", 137)
    assert_nothing_left(inventory)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_of_the_table(row: Row, inventory: Inventory, tmp_path: Path) -> None:
    shown = show(row, inventory, tmp_path)
    seen = f"{shown.result.reason}\n{output(shown.events, 0)}"
    assert re.fullmatch(row.reason, shown.result.reason), seen
    assert shown.result.exit_code == row.code
    assert_nothing_left(inventory)
