"""Capacity that no zone has whole, and what there is: the installed command in the lab.

`test_main_job.py` gets its nodes in the third zone.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ZONES, Gpuctl, cluster_file

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.thorough]


def test_room_for_three_of_four_launches_nothing_and_says_so(
    gpuctl: Gpuctl, room: Callable[..., None], tmp_path: Path
) -> None:
    room(3, 3, 3)
    file = cluster_file(tmp_path, "short", nodes=4, capacity={"zones": ZONES})
    output = gpuctl("--lab", "up", str(file), "--yes", code=1)
    errors = [line for line in output.splitlines() if line.startswith("gpuctl: error: ")]
    assert len(errors) == 1
    assert re.fullmatch(
        r"gpuctl: error: no zone has 4 x p4d\.24xlarge whole, so nothing was launched \(us-east-1a:"
        r" InsufficientInstanceCapacity, us-east-1b: InsufficientInstanceCapacity, us-east-1c:"
        r" InsufficientInstanceCapacity\); .*",
        errors[0],
    )
    assert gpuctl("--lab", "status") == "No cluster exists.\n"


def test_capacity_lists_what_there_is(gpuctl: Gpuctl) -> None:
    text = gpuctl("--lab", "capacity", "p5.48xlarge", "--nodes", "2")
    assert text.startswith("p5.48xlarge in us-east-1: on-demand $55.04 per hour (list price of ")
    assert "Capacity blocks to buy (--nodes 2 --days 1):" in text
    told = gpuctl.json("--lab", "capacity", "p5.48xlarge", "--nodes", "2")
    assert set(told["spot_usd_h"]) == set(told["zones"])
    assert {block["count"] for block in told["blocks"]} == {2}
    assert told["reservations"] == []
    assert gpuctl("--lab", "capacity", "p5.48xlage", code=2).startswith(
        "gpuctl: error: no zone of us-east-1 offers p5.48xlage; nearest names: p5.48xlarge"
    )


def test_a_block_is_bought_with_its_sum_and_named_by_a_cluster_file(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    """A cluster's plan in the block: it begins tomorrow, so that the plan needs `wait`."""
    size = ("p4d.24xlarge", "--nodes", "2", "--days", "2")
    asked = gpuctl("--lab", "buy", *size, code=2)
    (amount,) = re.findall(r"add --pay ([\d.]+) if that is what you want", asked)
    bought = gpuctl.json("--lab", "buy", *size, "--pay", amount)
    assert (bought["state"], bought["total"]) == ("scheduled", 2)
    capacity = {"type": "capacity-block", "id": bought["id"], "wait": "48h"}
    file = cluster_file(tmp_path, "block", nodes=2, capacity=capacity)
    assert f"Capacity: capacity-block {bought['id']} in {bought['zone']}, until " in gpuctl(
        "--lab", "plan", str(file)
    )
