"""Broken machines are named by `gpuctl health`, before a run too, on machines that boot."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from config.errors import LabError
from nodes.keys import generate_pair
from provision.setup.lease.units import request_end, set_end
from tests.e2e.conftest import Gpuctl, cluster_file, lease_end, read_until, run_file
from tests.e2e.machines import Machines
from tests.e2e.region import ec2, what_bills

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def findings(gpuctl: Gpuctl, *options: str, code: int = 1) -> list[str]:
    """What `gpuctl health` finds, without the host's own limits of memory and disks."""
    text = gpuctl("--lab", "health", "proven", *options, "--json", code=code)
    document, _ = json.JSONDecoder().raw_decode(text)  # warnings follow it
    return [
        f"{one['severity']} {one['node']} {one['subject']}: {one['seen']}"
        for one in document["findings"]
        if one["rule"] not in ("memlock", "disk")
    ]


def break_node1(gpuctl: Gpuctl, *values: str) -> Any:
    return gpuctl("lab", "fault", "set", "hardware", "proven-node1", *values)


def a_broken_machine_is_replaced_and_no_other(gpuctl: Gpuctl) -> None:
    """The fault is the old machine's."""
    before = addresses(gpuctl)
    assert gpuctl.json("--lab", "heal", "proven", "--yes")["replaced"] == {}
    break_node1(gpuctl, "gpus=7")
    gpuctl("--lab", "extend", "proven", "2h")
    gpuctl("--lab", "grant", "proven", generate_pair("ann@laptop")[1])
    replaced = gpuctl.json("--lab", "heal", "proven", "--yes")["replaced"]
    now = addresses(gpuctl)
    assert (now["node0"], list(now)) == (before["node0"], list(before))
    assert replaced == {"node1": now["node1"]}
    assert now["node1"] != before["node1"]
    assert findings(gpuctl, code=0) == []
    count = "grep -c ' ann@laptop (granted by gpuctl)$' /root/.ssh/authorized_keys"
    assert gpuctl("--lab", "exec", "proven", "--", count) == "--- node[0-1]\n1\n"
    old, new = (lease_end(gpuctl, "proven", node) for node in now)
    assert abs(old - new) < timedelta(minutes=1)
    assert old - datetime.now(UTC) > timedelta(hours=2)  # the old one's is extended


def up_replaces_a_machine_that_is_broken_from_the_start(gpuctl: Gpuctl, file: Path) -> None:
    """Each machine of node1 that is launched lacks a GPU, until `up` has seen the first."""
    gpuctl("lab", "fault", "set", "hardware", "launched:proven-node1", "gpus=7")
    with gpuctl.running("--lab", "up", str(file), "--yes") as process:
        read_until(process, "spare: node1: running (replaces i-")
        gpuctl("lab", "fault", "clear", "hardware")
        rest, _ = process.communicate()
    assert process.returncode == 0, rest
    assert "Cluster proven is ready" in rest
    assert re.search(r"\n  node1: i-\w+ was replaced: GPUs: expected 8, actual 7", rest), rest


def addresses(gpuctl: Gpuctl) -> dict[str, str]:
    """The instance of each node, in rank order."""
    (status,) = gpuctl.json("--lab", "status", "proven")
    running = [node for node in status["nodes"] if node["state"] == "running"]
    return {node["name"]: node["instance_id"] for node in running}


def machines_end_at_their_max_with_no_client_and_no_network(gpuctl: Gpuctl) -> None:
    """The bastion and node1 are cut off, then their `max` is over in two seconds; node0 stays."""
    (gpuctl.state / "clusters/proven/broker.sock").unlink()
    there = Machines(gpuctl, "proven")
    ends = {"bastion": request_end(2), "node1": set_end(2)}
    instances = [there.instance_of(name) for name in ends]
    for name in ends:
        there.set_link(there.link_of(name), "down")
    for name, script in ends.items():
        with suppress(LabError):  # the machine may be off before the script ends
            there.run_inside(name, script)
    waiter = ec2(gpuctl).get_waiter("instance_terminated")
    waiter.wait(InstanceIds=instances, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    assert list(addresses(gpuctl)) == ["node0"]


def test_a_broken_machine_is_named_until_it_is_whole_again(gpuctl: Gpuctl, tmp_path: Path) -> None:
    capacity = {"spare_attempts": 1}
    fields = {"capacity": capacity, "lifetime": {"max": "1h"}}
    file = cluster_file(tmp_path, "proven", instance_type="p5.48xlarge", **fields)
    up_replaces_a_machine_that_is_broken_from_the_start(gpuctl, file)
    assert findings(gpuctl, code=0) == []

    faults = ("gpus=7", "efa=31", "ecc=2", "xid=79", "driver=580.95.05", "clock=300")
    break_node1(gpuctl, *faults)
    assert findings(gpuctl) == [
        "isolate node1 GPUs: 7",
        "isolate node1 GPUs that DCGM finds: 7",
        "isolate node1 EFA devices: 31",
        "isolate node1 version of NVIDIA driver: 580.95.05, alone among 2 nodes",
        "reboot node1 fabric manager version: 595.91.07",
        "reboot node1 kernel log of 0000:64:00: Xid 79, the GPU has fallen off the bus",
        "reboot node1 clock: 300 s ahead",
        "reset node1 uncorrectable ECC errors of GPU 1: 2",
        "watch node1 GPUDirect RDMA: libfabric finds 31",
    ]
    job = run_file(tmp_path, "job", ["true"])
    refused = gpuctl("--lab", "run", str(job), "--cluster", "proven", code=125)
    heal = f"`{gpuctl.program} heal` replaces the node"
    assert f"node1: GPUs: expected 8, actual 7 (isolate: {heal}" in refused
    assert "node1: kernel log of 0000:64:00: expected no error, actual Xid 79" in refused
    assert "node0" not in refused
    gpuctl("--lab", "run", str(job), "--cluster", "proven", "--no-health")

    break_node1(gpuctl, "library=595.99.01")
    assert findings(gpuctl)[0].startswith("isolate node1 NVIDIA driver: Failed to initialize NVML")

    break_node1(gpuctl, "dcgm=memory")
    deep = findings(gpuctl, "--deep", "--yes")
    found = "Detected a failure of the memory test in GPU 1."
    assert f"isolate node1 DCGM's memory on GPU 1: {found}" in deep
    assert not [line for line in deep if "all_reduce" in line]

    a_broken_machine_is_replaced_and_no_other(gpuctl)
    gpuctl("--lab", "run", str(job), "--cluster", "proven")
    machines_end_at_their_max_with_no_client_and_no_network(gpuctl)
    gpuctl("--lab", "down", "proven", "--yes")
    assert what_bills(gpuctl, "proven") == {}
