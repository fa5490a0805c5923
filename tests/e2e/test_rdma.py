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
CHANNEL = "say 'Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA'"
SOCKETS = (
    "say Using network Socket;"
    " say 'comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0'"
)
ON_WORKER = 'if [ "$GPUCTL_NODE_RANK" = 1 ]; then {}; fi'
LOOK = "check `fi_info -p efa` and `ls /dev/infiniband` there, in the job's container too"


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


def test_ranks_go_by_the_topology_or_by_the_launch(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    def order(**fields: Any) -> list[str]:
        file = run_file(tmp_path, "order", ["true"], **fields)
        plan = gpuctl.json("--lab", "run", str(file), "--cluster", cluster, "--dry-run")
        return [node["name"] for node in plan["nodes"]]

    assert order(nodes=3) == ["node0", "node2", "node1"]
    assert order(nodes=3, order="launch") == ["node0", "node1", "node2"]
    assert order(nodes=2) == ["node0", "node2"]
    output = run(gpuctl, tmp_path, ["echo rank $GPUCTL_NODE_RANK is $GPUCTL_NODE_NAME"], nodes=3)
    for place in ("rank 0 is node0", "rank 1 is node2", "rank 2 is node1"):
        assert place in output


def test_lines_of_efa_prove_it_on_every_node(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    commands = [SAY, EFA, "say Using network Libfabric", CHANNEL, "env | grep ^NCCL_"]
    output = run(gpuctl, tmp_path, commands, verify="require")
    assert sorted(seen(gpuctl)) == [
        (rank, "proof", f"{node} uses {what}")
        for rank, node in enumerate(("node0", "node2"))
        for what in ("EFA: 4 interfaces", "GPUDirect RDMA")
    ]
    assert "Transport: node[0,2] uses EFA: 4 interfaces; node[0,2] uses GPUDirect RDMA\n" in gpuctl(
        "--lab", "results", "rdma-job"
    )
    assert "NCCL_DEBUG=INFO" in output
    assert "NCCL_SOCKET_IFNAME=^docker,lo,veth" in output


def test_sockets_on_one_node_fail_the_run_at_once(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    commands = [SAY, ON_WORKER.format(SOCKETS), "sleep infinity"]
    output = run(gpuctl, tmp_path, commands, code=1)
    fault = f"node2 uses sockets instead of EFA: `Using network Socket`; {LOOK}"
    assert seen(gpuctl) == [(1, "fault", fault)]
    assert fault in " ".join(output.split())


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


def test_what_does_not_fit_the_hardware_is_refused_and_what_harms_is_warned_of(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    assert run(gpuctl, tmp_path, ["true"], network="infiniband", code=2) == (
        "gpuctl: error: network infiniband does not fit: node0 has no InfiniBand device; remove"
        " `network`: gpuctl then chooses the preset for the nodes' hardware\n"
    )
    file = run_file(tmp_path, "warned", ["true"], env={"NCCL_PROTO": "simple"})
    plan = gpuctl.json("--lab", "run", str(file), "--cluster", cluster, "--dry-run")
    assert plan["warnings"] == [
        "env NCCL_PROTO was needed up to aws-ofi-nccl 1.5; now it disables faster protocols;"
        " leave it out"
    ]


def test_too_few_interfaces_fail_the_run(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    few = EFA.replace("found 4", "found 3")
    run(gpuctl, tmp_path, [SAY, ON_WORKER.format(few), "sleep infinity"], code=1)
    ((rank, level, text),) = seen(gpuctl)
    assert (rank, level) == (1, "fault")
    assert text.startswith("node2 uses 3 of 4 EFA interfaces: ")


def test_verify_decides_what_a_fallback_means(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    run(gpuctl, tmp_path, [SAY, SOCKETS], verify="warn")
    assert sorted((rank, level) for rank, level, _ in seen(gpuctl)) == [
        (0, "warning"),
        (1, "warning"),
    ]
    # Where nothing has to be proven, what was seen is shown, and is no warning.
    run(gpuctl, tmp_path, [SAY, SOCKETS], verify="off")
    assert {level for _, level, _ in seen(gpuctl)} == {"proof"}
    run(gpuctl, tmp_path, [SAY, SOCKETS], network="tcp")
    assert {level for _, level, _ in seen(gpuctl)} == {"proof"}
    output = run(gpuctl, tmp_path, ["true"], verify="require", code=1)
    assert "no line of NCCL shows EFA, which `verify: require` needs" in " ".join(output.split())


def test_all_ranks_of_a_task_on_one_node_fail_it(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path
) -> None:
    program = "/root/nccl-tests/build/all_reduce_perf -b 8 -e 8 -w 1 -n 1"
    launch = f"mpirun --allow-run-as-root --oversubscribe -n 4 {program}"
    commands = [f'if [ "$GPUCTL_NODE_RANK" = 0 ]; then {launch}; else sleep infinity; fi']
    output = run(gpuctl, tmp_path, commands, stop_criteria="master-done", code=1)
    ((rank, level, text),) = seen(gpuctl)
    assert (rank, level) == (0, "fault")
    assert text.startswith("all 4 ranks of nccl-tests ran on node0 (ip-")
    assert "of 2 nodes: the launcher ignored the hostfile" in text
    assert "# Out of bounds values : 0 OK" in output  # the program itself saw nothing wrong


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
