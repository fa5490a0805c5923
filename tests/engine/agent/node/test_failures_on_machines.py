"""Rows of docs/look-up/failures.md that only machines can show: code, reason, nothing left."""

import re
from pathlib import Path

import pytest

from nodes.inventory import Inventory
from tests.engine.failure_rows import ROWS, Row, show
from tests.engine.machines import assert_nothing_left, execute, job, output
from tests.engine.shared_kernel import kernel_log

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

LIMIT = "systemctl set-property --runtime gpuctl-run-$GPUCTL_RUN_ID-1.service MemoryMax=60M"
EAT = f"{LIMIT}; python3 -c 'bytearray(300 << 20)'"
IS_WRITTEN = "until grep -q ': Killed process .*(python3)' /dev/kmsg; do sleep 0.05; done"


def test_a_unit_with_a_memory_limit(inventory: Inventory, tmp_path: Path) -> None:
    """The machine cannot read the kernel's log: the control group counts the kill."""
    command = f"if [ $DSTACK_NODE_RANK = 1 ]; then {EAT}; else sleep 1000; fi"
    result, events = execute(inventory, job(inventory, command), tmp_path)
    assert re.fullmatch(
        r"node1: killed by SIGKILL \(137\): the kernel killed .* because .*",
        result.reason,
    ), output(events, 1)
    assert (result.status, result.exit_code) == ("failed", 137)
    assert_nothing_left(inventory)


def test_a_kill_for_memory_has_the_words_of_the_kernels_log(
    inventory: Inventory, tmp_path: Path
) -> None:
    eat = f"setsid sleep 1234 & {EAT}; code=$?; {IS_WRITTEN}; exit $code"
    command = f"if [ $DSTACK_NODE_RANK = 1 ]; then {eat}; else sleep 1000; fi"
    plan = job(inventory, command, max_duration="60s")  # the log may never have it
    with kernel_log(inventory, 1):
        result, events = execute(inventory, plan, tmp_path)
    assert re.fullmatch(
        r"node1: killed by SIGKILL \(137\): the kernel killed python3 \(pid \d+,"
        r" \d\d\.\d MiB\) because its memory limit was reached",
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
