"""The lease of a cluster, as its machines keep it while no client is there."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.conftest import READ_LEASE_END, Gpuctl, cluster_file, run_file
from tests.e2e.machines import Machines
from tests.e2e.region import ec2

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

A_CLOCK_THAT_IS_YEARS_BEHIND = """\
sed -i 's/^OnCalendar=.*/OnCalendar=2099-01-01 00:00:00 UTC/; s/^OnActiveSec=.*/OnActiveSec=40s/' \
/etc/systemd/system/gpuctl-lifetime.timer
systemctl daemon-reload
systemctl restart --no-block gpuctl-lifetime.timer
"""
"""The machines of the lab share this machine's clock: the end in the calendar moves instead."""

A_SHUTDOWN_THAT_HANGS = (
    "systemd-run --quiet --property=TimeoutStopSec=infinity"
    " sh -c \"trap '' TERM; while :; do sleep 9; done\""
)
"""The shutdown waits for this unit for ever, as for a driver or a mount of Lustre that hangs."""


def test_a_lease_is_extended_and_ends_the_cluster_without_a_client(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    """node0 has a run; node1 has none, and its `max` is over before the run.

    Then the network of node0 is cut: it ends all the same, and not before its run. Its shutdown
    hangs.
    """
    file = cluster_file(tmp_path, "leased", lifetime={"max": "30m", "idle": "20s"})
    gpuctl("--lab", "up", str(file), "--yes")
    nodes = Machines(gpuctl, "leased")
    link = nodes.link_of("node0")
    # From here on gpuctl's own connections keep the cluster.
    assert gpuctl("--lab", "exec", "leased", "--", "systemctl is-active gpuctl-idle") == (
        "--- node[0-1]\nactive\n"
    )
    moved = gpuctl.json("--lab", "extend", "leased", "2h")
    assert moved["machines"] == ["node0", "node1", "bastion"]
    texts = gpuctl("--lab", "exec", "leased", "--", READ_LEASE_END)
    texts += gpuctl("--lab", "ssh", "leased", "bastion", "--", READ_LEASE_END)
    expected = datetime.fromisoformat(moved["end"]).timestamp()
    for text in re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", texts):
        actual = datetime.strptime(text, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC).timestamp()
        assert abs(actual - expected) < 60
    assert texts.count(" UTC") in (2, 3)  # equal answers of nodes are folded
    status = gpuctl.json("--lab", "status", "leased")[0]
    assert (status["ends"], status["idle_s"]) == (moved["end"], 20)

    busy = run_file(tmp_path, "busy", ["sleep 60"], nodes=1)
    gpuctl("--lab", "run", str(busy), "--cluster", "leased", "--detach")
    gpuctl("--lab", "ssh", "leased", "node0", "--", A_SHUTDOWN_THAT_HANGS)
    gpuctl("--lab", "ssh", "leased", "node1", "--", A_CLOCK_THAT_IS_YEARS_BEHIND)
    (gpuctl.state / "clusters/leased/broker.sock").unlink()  # the client is gone
    begun = time.monotonic()
    ids = {node["name"]: node["instance_id"] for node in status["nodes"]}
    instance = re.search(r'"instance (i-[0-9a-f]+)"', json.dumps(status["others"]))
    assert instance is not None  # the bastion
    took = {}
    for name, wanted in (*reversed(ids.items()), ("bastion", instance[1])):
        waiter = ec2(gpuctl).get_waiter("instance_terminated")
        waiter.wait(InstanceIds=[wanted], WaiterConfig={"Delay": 1, "MaxAttempts": 180})
        took[name] = time.monotonic() - begun
        if name == "node1":
            nodes.set_link(link, "down")  # neither bastion nor AWS hears of its run any more
    assert took["node1"] > 30  # the run on node0 kept it, until its own end
    assert took["node0"] > 60
    gpuctl("--lab", "down", "leased", "--yes")
