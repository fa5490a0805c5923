"""Nodes that die, and links that are cut: noticed in time, survived where they are short.

One cluster of two nodes for the whole file; the tests go on where the one before left it.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file, lease_end, read_until, run_file
from tests.e2e.machines import Machines
from tests.e2e.region import ec2

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

TICKS = ["for i in $(seq 120); do echo tick $i; sleep 0.25; done"]
LAB_SOURCES = {"lab-console", "lab-links", "lab-log", "lab-neighbours", "lab-processes"}
HEAD_SOURCES = {"connect", "heartbeats", "kernel", "load", "neighbours", "ping", "sockets", "ssh"}


@dataclass(frozen=True)
class Cluster(Machines):
    """The cluster of this file."""

    folder: Path

    def run(self, name: str, commands: list[str], **fields: Any) -> tuple[str, ...]:
        """The arguments of gpuctl for a run on this cluster."""
        file = run_file(self.folder, name, commands, **fields)
        return ("--lab", "run", str(file), "--cluster", self.cluster)


@pytest.fixture(scope="module")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("lost")
    file = cluster_file(folder, "lost", lifetime={"max": "3h"})
    output = gpuctl("--lab", "up", str(file), "--yes")
    assert re.search(r"^reach: node1: done", output, re.MULTILINE), output
    yield Cluster(gpuctl, "lost", folder)
    gpuctl("--lab", "down", "lost", "--yes")


def test_a_link_cut_for_8_seconds_loses_and_doubles_nothing(cluster: Cluster) -> None:
    link = cluster.link_of("node1")
    with cluster.gpuctl.running(*cluster.run("short", TICKS)) as process:
        lines = read_until(process, "[node1] tick 8\n")
        cluster.set_link(link, "down")
        time.sleep(8)  # the disturbance
        cluster.set_link(link, "up")
        assert process.stdout is not None
        lines += process.stdout
        assert process.wait() == 0, "".join(lines)
    for rank in (0, 1):
        ticks = [line for line in lines if line.startswith(f"[node{rank}] tick")]
        assert ticks == [f"[node{rank}] tick {i}\n" for i in range(1, 121)]
    (again,) = [line for line in lines if "answers again" in line]
    assert re.fullmatch(r"-- node1 answers again, after a silence of \d+ s\n", again)


def test_a_link_that_stays_cut_is_noticed_and_evidence_is_kept(cluster: Cluster) -> None:
    link = cluster.link_of("node1")
    with cluster.gpuctl.running(*cluster.run("cut", ["echo runs; sleep 1000"])) as process:
        read_until(process, "[node1] runs")
        cut = time.monotonic()
        cluster.set_link(link, "down")
        lines = read_until(process, "-- node1 lost: ")
        noticed = time.monotonic() - cut
        assert process.stdout is not None
        lines += process.stdout
        assert process.wait() == 125
    cluster.set_link(link, "up")
    seen = r"has not answered for 15 s \(last heard \d\d:\d\d:\d\d UTC\)"
    assert re.fullmatch(f"-- node1 lost: {seen}\n", next(x for x in lines if "lost" in x))
    assert re.search(f"exit code 125: node1 {seen}$", "".join(lines), re.MULTILINE)
    assert noticed < 35  # 15 s, and what a busy machine takes to show it; ssh's own took 39
    shown = re.search(r"^Evidence: .* is in (.+)$", "".join(lines), re.MULTILINE)
    assert shown, lines
    kept = {path.stem: path.read_text() for path in (Path(shown[1]) / "node1").iterdir()}
    assert kept.keys() >= LAB_SOURCES | HEAD_SOURCES
    assert "no answer 3 within 1 s" in kept["ping"]
    assert "systemd" in kept["lab-processes"]
    left = "systemctl is-active 'gpuctl-run-*' | grep -c active; true"
    deadline = time.monotonic() + 60
    while cluster.gpuctl("--lab", "exec", "lost", "--", left).split()[-1] != "0":
        assert time.monotonic() < deadline, "node1 has not ended its job"
        time.sleep(1)


STEPS = """
touch $GPUCTL_CHECKPOINT_DIR/step
begin=$(cat $GPUCTL_CHECKPOINT_DIR/step)
echo begins after step ${begin:-0} on $(hostname)
[ $GPUCTL_NODE_RANK = 0 ] || exec sleep 1000
for step in $(seq $((begin + 1)) 40); do
  sleep 0.25; echo $step > $GPUCTL_CHECKPOINT_DIR/step; echo step $step of $GPUCTL_RESTART_COUNT
  [ $GPUCTL_RESTART_COUNT = 1 ] || [ $step -lt 39 ] || sleep 1000
done
"""


def test_a_node_that_died_is_made_again_and_the_run_goes_on(cluster: Cluster) -> None:
    """Its address is the one before, so the head's neighbour table has the dead machine's."""
    gpuctl, dead = cluster.gpuctl, cluster.instance_of("node1")
    gpuctl("--lab", "exec", "lost", "--", "ssh -o BatchMode=yes node1 true")
    fields = {"retry": {"attempts": 2, "on": ["node-lost"]}, "stop_criteria": "master-done"}
    with gpuctl.running(*cluster.run("heals", [STEPS], **fields)) as process:
        lines = read_until(process, "step 8 of 0\n")
        cluster.pull_the_plug("node1")
        assert process.stdout is not None
        lines += process.stdout
        assert process.wait() == 0, "".join(lines)
    assert cluster.instance_of("node1") != dead
    old, new = (lease_end(gpuctl, "lost", node) for node in ("node0", "node1"))
    assert abs(old - new) < timedelta(seconds=20)  # it was launched much later
    ended = [line for line in lines if line.startswith("-- attempt")]
    assert re.fullmatch("-- attempt 1 of 2 failed: node1 .*\n", ended[0])
    assert ended[1:] == ["-- attempt 2 starts\n"]
    assert "-- the run waits for node1, for 1h 00m at most\n" in lines
    steps = [int(found[1]) for line in lines if (found := re.search(r"step (\d+) of ", line))]
    assert steps == list(range(1, 41))
    assert re.search(
        r"^Run heals-.*: done in .* and 2 attempts, exit code 0$", "".join(lines), re.M
    )


LEFT = "systemctl list-units --no-legend 'gpuctl-run-*'; pgrep -ax sleep; true"


def test_a_run_is_stopped_when_the_head_shuts_down(cluster: Cluster) -> None:
    """The client follows it to its end, through a login that a shutdown ends.

    The login is no older than the run, as that of a client that attached or connected again.
    """
    gpuctl, head = cluster.gpuctl, cluster.instance_of("node0")
    commands = ["setsid sleep 1234 & echo runs; sleep 1000"]
    with gpuctl.running(*cluster.run("orderly", commands)) as process:
        name = read_until(process, "-- run ")[-1].split()[2]
        read_until(process, "[node1] runs")
        cluster.put_logins_into_scopes()
        gpuctl("--lab", "ssh", "lost", "node0", "--", "systemctl --no-block poweroff")
        assert process.stdout is not None
        lines = list(process.stdout)
        assert process.wait() == 130, "".join(lines)
    reason = "the supervisor got SIGTERM"
    verdict = rf"^Run {name}: stopped in .*, exit code 130: {reason}$"
    assert re.search(verdict, "".join(lines), re.MULTILINE), lines
    (run,) = [one for one in gpuctl.json("--lab", "ps") if one["run_id"] == name]
    assert (run["status"], run["exit_code"], run["reason"]) == ("stopped", 130, reason)
    assert gpuctl("--lab", "ssh", "lost", "node1", "--", LEFT) == ""
    ec2(gpuctl).get_waiter("instance_terminated").wait(
        InstanceIds=[head], WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )
    output = gpuctl("--lab", "up", str(cluster.folder / "lost.yaml"), "--yes")
    assert "Plan: 1 to create, 0 to change, 0 to replace, 0 to delete." in output


def test_a_run_ends_for_its_client_when_the_head_is_powered_off(cluster: Cluster) -> None:
    gpuctl = cluster.gpuctl
    with gpuctl.running(*cluster.run("headless", ["echo runs; sleep 1000"])) as process:
        name = read_until(process, "-- run ")[-1].split()[2]
        read_until(process, "[node1] runs")
        head = cluster.instance_of("node0")
        cluster.pull_the_plug("node0")
        assert process.stdout is not None
        lines = list(process.stdout)
        assert process.wait() == 125, "".join(lines)
    reason = (
        f"node0 was lost: its machine {head} is terminated:"
        " Client.InstanceInitiatedShutdown: Instance initiated shutdown"
    )
    assert lines[-1] == f"gpuctl: error: run {name}: {reason}; `{gpuctl.program} up` replaces it\n"
    assert any(line.startswith("-- the head has not answered for ") for line in lines)
    (run,) = [one for one in gpuctl.json("--lab", "ps") if one["run_id"] == name]
    assert (run["status"], run["exit_code"]) == ("failed", 125)
    assert run["reason"] == reason
    assert "[node1] runs\n" in gpuctl("--lab", "logs", name)
    assert f"gpuctl: error: run {name} failed: {reason}\n" in gpuctl(
        "--lab", "attach", name, code=125
    )
    (there,) = gpuctl.json("--lab", "status", "lost")
    assert [node["name"] for node in there["nodes"] if node["state"] == "running"] == ["node1"]
