"""Capacity is had whole, in another zone, or not at all: the installed command in the lab."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file, read_until

pytestmark = [pytest.mark.lab, pytest.mark.engine]

P4D = "p4d.24xlarge"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


@pytest.fixture
def room(gpuctl: Gpuctl) -> Iterator[Callable[..., None]]:
    """`room(0, 3, 4)` limits the zones to so many instances until the test ends."""

    def limit(*counts: int) -> None:
        table = {zone: {P4D: count} for zone, count in zip(ZONES, counts, strict=True)}
        gpuctl.lab.capacity.write_text(json.dumps(table))

    yield limit
    gpuctl.lab.capacity.unlink(missing_ok=True)


def test_four_nodes_come_whole_in_the_third_zone(
    gpuctl: Gpuctl, room: Callable[..., None], tmp_path: Path
) -> None:
    room(0, 3, 4)
    file = cluster_file(tmp_path, "moved", nodes=4, capacity={"zones": ZONES})
    with gpuctl.running("--lab", "up", str(file), "--yes") as up:
        read_until(up, "capacity: us-east-1a: start")
        began = time.monotonic()
        tried = read_until(up, "capacity: us-east-1c: done")
        lost = time.monotonic() - began
        read_until(up, "Cluster moved is ready")
    assert lost < 10
    assert [line.split(" in ")[0].strip() for line in tried if "failed" in line] == [
        "capacity: us-east-1a: failed (InsufficientInstanceCapacity)",
        "capacity: us-east-1b: failed (InsufficientInstanceCapacity)",
    ]
    (cluster,) = gpuctl.json("--lab", "status", "moved")
    assert [node["state"] for node in cluster["nodes"]] == ["running"] * 4
    assert not [other for other in cluster["others"] if other.startswith("capacity reservation")]
    assert "No changes" in gpuctl("--lab", "plan", str(file))
    gpuctl("--lab", "down", "moved", "--yes")


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
    assert "Capacity blocks to buy for 2 nodes:" in text
    told = gpuctl.json("--lab", "capacity", "p5.48xlarge", "--nodes", "2")
    assert set(told["spot_usd_h"]) == set(told["zones"])
    assert {block["count"] for block in told["blocks"]} == {2}
    assert told["reservations"] == []
    assert gpuctl("--lab", "capacity", "p5.48xlage", code=2).startswith(
        "gpuctl: error: no zone of us-east-1 offers p5.48xlage; nearest names: p5.48xlarge"
    )
