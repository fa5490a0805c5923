"""The main job: a cluster comes up, dstack's task file runs as written, the fleet goes away."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ZONES, Gpuctl, cluster_file, read_until
from tests.e2e.region import what_bills

pytestmark = pytest.mark.lab


def test_the_seeds_job_on_two_nodes_from_up_to_destroyed(
    gpuctl: Gpuctl, room: Callable[..., None], tmp_path: Path
) -> None:
    room(0, 1, 2)
    file = cluster_file(tmp_path, "main", capacity={"zones": ZONES})
    first = the_nodes_come_whole_in_the_third_zone(gpuctl, file)
    assert "0 to change, 0 to replace, 0 to delete." in first
    assert "Network of node0 … node1, each: 4 EFA interfaces, 4 network cards" in first

    again = gpuctl("--lab", "up", str(file), "--yes")
    assert "No changes: the cluster is what the file says." in again
    assert "Plan: 0 to create, 0 to change, 0 to replace, 0 to delete." in again

    (status,) = gpuctl.json("--lab", "status")
    assert status["name"] == "main"
    nodes = [node for node in status["nodes"] if node["name"] != "bastion"]
    assert [node["state"] for node in nodes] == ["running", "running"]
    assert not [other for other in status["others"] if other.startswith("capacity reservation")]

    answers = gpuctl("--lab", "exec", "main", "--", "nproc")
    assert answers.startswith("--- node[0-1]\n")  # equal answers are folded
    different = gpuctl("--lab", "exec", "main", "--", "hostname -I; exit 3", code=3)
    assert "--- node0: exit code 3" in different

    seed = ("stacks/nccl-tests.dstack.yaml", "--no-image")  # the lab reaches no registry
    output = gpuctl("--lab", "run", *seed, "--cluster", "main", "--on-stop", "destroy")
    assert_eight_ranks_on_each(output, [node["private_ip"] for node in nodes])
    assert "Cluster main is gone" in output
    assert what_bills(gpuctl, "main") == {}
    assert_results_are_kept(gpuctl, gpuctl.json("--lab", "ps")[0]["run_id"])


def the_nodes_come_whole_in_the_third_zone(gpuctl: Gpuctl, file: Path) -> str:
    """Return what `up` prints; the first zone has room for none, the second for one."""
    with gpuctl.running("--lab", "up", str(file), "--yes") as up:
        lines = read_until(up, "capacity: us-east-1a: start")
        began = time.monotonic()
        tried = read_until(up, "capacity: us-east-1c: done")
        lost = time.monotonic() - began
        lines += tried + read_until(up, "Cluster main is ready")
        read_until(up, f" per hour until `{gpuctl.program} down main`: it has no lease.\n")
        assert up.wait(60) == 0
    assert lost < 10
    assert [line.split(" in ")[0].strip() for line in tried if "failed" in line] == [
        "capacity: us-east-1a: failed (InsufficientInstanceCapacity)",
        "capacity: us-east-1b: failed (InsufficientInstanceCapacity)",
    ]
    return "".join(lines)


def assert_eight_ranks_on_each(output: str, addresses: list[str]) -> None:
    """Check that each rank names its machine: eight on each, in the order of the nodes."""
    line = r"#\s+Rank\s+(\d+) .* on (\S+) device +(\d+) \[\S+\] CPU stand-in"
    devices = re.findall(line, output)
    assert [(int(rank), host, int(device)) for rank, host, device in devices] == [
        (8 * number + device, f"ip-{address.replace('.', '-')}", device)
        for number, address in enumerate(addresses)
        for device in range(8)
    ]


def assert_results_are_kept(gpuctl: Gpuctl, run_id: str) -> None:
    """Check the table and the log of the run, whose cluster is gone."""
    (table,) = gpuctl.json("--lab", "results", run_id)["tables"]
    facts, rows = table["facts"], table["rows"]
    assert [row["size"] for row in rows][:3] == [8, 16, 32]
    assert all(row[half]["wrong"] == 0 for row in rows for half in ("out_of_place", "in_place"))
    assert (facts["collective"], facts["out_of_bounds"], len(facts["ranks"])) == (
        "all_reduce",
        0,
        16,
    )
    shown = gpuctl("--lab", "results", "nccl-tests")
    assert shown.startswith(f"Run {run_id}: done, exit code 0\nTransport: ")
    assert f"\n{rows[-1]['size']} " in shown
    assert "Out of bounds values : 0 OK" in gpuctl("--lab", "logs", run_id, "--rank", "0")


def test_two_p5_nodes_are_planned_with_32_efa_interfaces_each(gpuctl: Gpuctl) -> None:
    text = gpuctl("--lab", "plan", "stacks/p5-2node.yaml", "--detailed-exitcode", code=2)
    assert "Network of node0 … node1, each: 32 EFA interfaces, 32 network cards" in text
    plan = gpuctl.json("--lab", "plan", "stacks/p5-2node.yaml")
    assert set(plan["nodes"]) == {"node0", "node1"}
    for interfaces in plan["nodes"].values():
        assert interfaces[0] == {"card": 0, "device": 0, "type": "interface"}
        assert interfaces[1] == {"card": 0, "device": 1, "type": "efa-only"}
        assert interfaces[2:] == [
            {"card": card, "device": 0, "type": "efa-only"} for card in range(1, 32)
        ]
    assert {change["op"] for change in plan["changes"]} == {"create"}
    assert gpuctl("--lab", "status") == "No cluster exists.\n"  # a plan creates nothing
