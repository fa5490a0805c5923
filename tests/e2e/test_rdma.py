"""The fast network in the lab: found by bootstrap, chosen, proven from NCCL's lines, in order.

No machine here has EFA: jobs print what NCCL prints where there is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, run_file
from tests.e2e.region import what_bills

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

SAY = 'say() { echo "$(hostname):$$:$$ [0] NCCL INFO $*"; }'
EFA = "say 'NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)'"
SOCKETS = (
    "say Using network Socket;"
    " say 'comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0'"
)
ON_WORKER = 'if [ "$GPUCTL_NODE_RANK" = 1 ]; then {}; fi'


@pytest.fixture(scope="module")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = cluster_file(tmp_path_factory.mktemp("rdma"), "rdma", nodes=3, network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    yield "rdma"
    gpuctl("--lab", "down", "rdma", "--yes")
    assert what_bills(gpuctl, "rdma") == {}


def run(gpuctl: Gpuctl, folder: Path, commands: list[str], *, code: int = 0, **fields: Any) -> str:
    """What a run on the cluster shows, which ended with `code`."""
    file = run_file(folder, "rdma-job", commands, **fields)
    return gpuctl("--lab", "run", str(file), "--cluster", "rdma", code=code)


def seen(gpuctl: Gpuctl) -> list[tuple[int, str, str]]:
    """What the last run's journal tells of its network."""
    run_id = gpuctl.json("--lab", "ps")[0]["run_id"]
    journal = gpuctl.state / "runs" / run_id / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    told = [event for event in events if event["kind"] == "network_seen"]
    return [(event["rank"], event["level"], event["text"]) for event in told]


def test_bootstrap_finds_hardware_software_and_topology(gpuctl: Gpuctl, cluster: str) -> None:
    path = gpuctl.state / "clusters" / cluster / "inventory.json"
    nodes = json.loads(path.read_text())["nodes"]
    for node in nodes:
        assert (node["efa"], node["hcas"], node["interface"]) == (4, [], "host0")
        assert node["software"]["openmpi"].startswith("4.1.")
    zero, one, two = (node["topology"] for node in nodes)
    assert len(zero) == 3
    assert zero == two
    assert zero[:2] == one[:2]
    assert zero[2] != one[2]
    address = nodes[1]["private_ip"]
    own_name = f"ip-{address.replace('.', '-')}"
    told = gpuctl("--lab", "ssh", cluster, "node0", "getent", "hosts", own_name)
    assert told.split() == [address, "node1", own_name]
    lookup = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    itself = gpuctl("--lab", "ssh", cluster, "node1", f"python3 -c '{lookup}'")
    assert itself.strip() == address  # as jobs look it up, and not a loopback


def test_a_line_that_mpirun_brought_is_about_the_node_that_wrote_it(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    there = ON_WORKER.replace("GPUCTL_NODE_RANK", "OMPI_COMM_WORLD_RANK").format(SOCKETS)
    started = "/tmp/$GPUCTL_RUN_ID"  # rank 1 ends the run: not before rank 0 has started
    meet = (
        f"if [ $OMPI_COMM_WORLD_RANK = 0 ]; then touch {started};"
        f" else until ssh node0 test -e {started}; do sleep 0.2; done; fi"
    )
    commands = [SAY, meet, there, "sleep infinity"]
    output = run(gpuctl, tmp_path, commands, type="mpi", procs_per_node=1, code=1)
    ((rank, level, text),) = seen(gpuctl)
    assert (rank, level) == (1, "fault")
    assert text.startswith("node2 uses sockets instead of EFA: ")
    assert "-- all 2 ranks started, on node[0,2]" in output


FAULT = "/etc/gpuctl-lab/faults.json"
PROGRAM = "/root/nccl-tests/build/all_reduce_perf -b 256K -e 1M -f 2 -w 1 -n 1"
TEE = (
    'if [ "$GPUCTL_NODE_RANK" = 0 ]; then mpirun --allow-run-as-root --oversubscribe'
    " --hostfile $DSTACK_HOSTFILE --mca plm_rsh_agent $GPUCTL_RUN_FOLDER/bin/ssh -n 4 -N 2"
    f" --mca btl_tcp_if_exclude lo,docker0 {PROGRAM} | tee /tmp/log; else sleep infinity; fi"
)


def test_one_wrong_value_fails_a_run_whose_pipe_ended_well(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    fault = '{\\"wrong-value-at\\": 524288}'
    gpuctl("--lab", "ssh", cluster, "node2", f'echo "{fault}" > {FAULT}')
    try:
        output = run(gpuctl, tmp_path, [TEE], stop_criteria="master-done", code=1)
        named = (
            "wrong data: all_reduce on node0 has 1 wrong value at 512K (524288 bytes),"
            " out-of-place (float, sum)"
        )
        (entry,) = gpuctl.json("--lab", "ps")[:1]
        assert (entry["status"], entry["exit_code"], entry["reason"]) == ("failed", 1, named)
        told = " ".join(output.split())
        assert f"-- fault: {named}" in told
        assert "part 1 of 2 ended with 1, and the pipe with 0" in told
        warned = run(gpuctl, tmp_path, [TEE], stop_criteria="master-done", verify="warn")
        assert f"Warning: {named}" in " ".join(warned.split())
        ignored = run(gpuctl, tmp_path, [TEE], stop_criteria="master-done", verify="off")
        assert "wrong data" not in ignored
    finally:
        gpuctl("--lab", "ssh", cluster, "node2", f"rm -f {FAULT}")
    shown = gpuctl("--lab", "results", entry["run_id"])
    assert shown.startswith(f"Run {entry['run_id']}: failed, exit code 1: {named}\n")
