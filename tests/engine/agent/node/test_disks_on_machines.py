"""Full disks of real machines: runs end as they should, and leave nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodes.inventory import Inventory
from tests.engine.machines import assert_nothing_left, execute, job, on, output

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

RUNS = "/var/lib/gpuctl/runs"
FULL = "No space left on device"
MUCH = "for i in $(seq 128); do head -c 65535 /dev/zero | tr '\\0' x; echo; done; echo the end"
"""Prints 8 MiB."""


@contextmanager
def small_disk(inventory: Inventory, rank: int, mib: int) -> Iterator[None]:
    """A node's runs lie on a disk of so many MiB."""
    mount = f"mkdir -p {RUNS} && mount -t tmpfs -o size={mib}m,mode=755 tmpfs {RUNS} && echo done"
    assert on(inventory, rank, mount) == "done\n"
    try:
        yield
    finally:
        on(inventory, rank, f"umount --lazy {RUNS}")


def test_the_heads_full_disk_is_the_verdict_and_the_job_ends(
    inventory: Inventory, tmp_path: Path
) -> None:
    ended = "/root/ended-$DSTACK_NODE_RANK"
    plan = job(inventory, f"rm -f {ended}; {MUCH}; touch {ended}")
    with small_disk(inventory, 0, 8):
        result, events = execute(inventory, plan, tmp_path)
        assert (result.status, result.exit_code, result.first_failed_node) == (
            "failed",
            125,
            "node0",
        )
        lost = result.reason.removeprefix(f"node0's disk is full ({FULL}): ")
        count, rest = lost.split(" ", 1)
        assert int(count) > 128
        assert rest == "events were not stored"
        full = [event for event in events if event.kind == "disk_full"]
        assert f"the run's output is not stored any more: {FULL}" in {
            getattr(event, "text", "") for event in full
        }
        assert_nothing_left(inventory)
        for rank in (0, 1):  # the job itself met no full disk, and ran to its end
            assert on(inventory, rank, f"ls /root/ended-{rank}") == f"/root/ended-{rank}\n"
    again, _ = execute(inventory, job(inventory, "true"), tmp_path)
    assert again.status == "done"


def test_a_nodes_full_disk_ends_its_log_and_nothing_else(
    inventory: Inventory, tmp_path: Path
) -> None:
    plan = job(inventory, MUCH)
    with small_disk(inventory, 1, 1):
        result, events = execute(inventory, plan, tmp_path)
        log = on(inventory, 1, f"stat -c %s {RUNS}/{result.run_id}/rank-1.log")
    assert (result.status, result.exit_code) == ("done", 0), result.reason
    (full,) = [event for event in events if event.kind == "disk_full"]
    assert getattr(full, "rank", None) == 1
    assert getattr(full, "text", None) == f"rank-1.log ends here: {FULL}"
    assert int(log) < 1 << 20
    for rank in (0, 1):
        assert output(events, rank).endswith("the end")
        assert output(events, rank).count("x") == 128 * 65535
    assert_nothing_left(inventory)


def test_a_job_that_fills_its_nodes_disk_fails_and_says_so(
    inventory: Inventory, tmp_path: Path
) -> None:
    """The run's folder is on that disk: its log ends, and what the job said arrives."""
    fills = f"setsid sleep 1234 & head -c 8M /dev/zero > {RUNS}/data || exit 3"
    plan = job(inventory, f"if [ $DSTACK_NODE_RANK = 1 ]; then {fills}; fi; sleep 1000")
    with small_disk(inventory, 1, 4):
        result, events = execute(inventory, plan, tmp_path)
        assert_nothing_left(inventory)
    said = f"head: error writing 'standard output': {FULL}"
    assert result.reason == (
        f"node1: exited with 3: the disk of {RUNS}/{plan.run_id} is full (0 B of 4.0 MiB"
        f' are free); it had no space left: "{said}"'
    )
    assert (result.status, result.exit_code, result.first_failed_node) == ("failed", 3, "node1")
    assert output(events, 1) == said
    (full,) = [event for event in events if event.kind == "disk_full"]
    assert getattr(full, "text", None) == f"rank-1.log ends here: {FULL}"
