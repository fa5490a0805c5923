"""Why NCCL failed, from its own warnings: its causes, and what a failure elsewhere looks like.

Lines are those of NCCL's, aws-ofi-nccl's and libfabric's sources (nccl_warnings.py), and of
nccl-tests#188, nccl#1247 and pytorch#149984.
"""

import pytest

from engine.agent.judge.failure_patterns import RECENT, Clues
from engine.agent.judge.failures import explain
from engine.agent.judge.nccl_warnings import read_warning
from engine.agent.judge.output_reader import OutputReader
from engine.contract.verdict import Verdict, exit_reason
from engine.contract.worker_events import NodeExamined, NodeFact, Output
from tests.engine.conftest import make_plan

HEAD = "node0:16899:16961 [0] "
UNRESPONSIVE = (
    "NET/OFI Request 0x7f456c224810 completed with error. RC: 103. Error: 4126 (Unresponsive"
    " receiver (reachable by EFA device but handshake failed) My EFA addr: fi_addr_efa://[fe80::c55"
)


@pytest.mark.parametrize(
    ("warning", "kind", "text"),
    [
        (
            "misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3",
            "nccl",
            "two ranks chose different networks, NET/IB and NET/Socket; the nodes differ in their"
            " RDMA devices or in NCCL's variables",
        ),
        (
            "misc/socket.cc:533 NCCL WARN socketFinalizeAccept from 10.0.0.5<41234>:"
            " wrong type 3 != 4",
            "nccl",
            "two ranks chose different networks, NET/IB and NET/Socket; the nodes differ in their"
            " RDMA devices or in NCCL's variables",
        ),
        (
            "misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 1 != 2",
            "nccl",
            "NCCL's connections were mixed up (bootstrap and proxy): two jobs may use one port",
        ),
        (
            "misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 9 != 2",
            "nccl",
            "NCCL's connections were mixed up (proxy and type 9): two jobs may use one port",
        ),
        (
            "misc/socket.cc:431 NCCL WARN socketFinalizeAccept: wrong magic 1f2 != d3a",
            "nccl",
            "a process of another job connected to NCCL's port",
        ),
        *(
            (line, "nccl", "RDMA could pin no memory; `ulimit -l` of the job has to be unlimited")
            for line in (
                "misc/ibvwrap.cc:203 NCCL WARN Call to ibv_create_cq failed with error Cannot"
                " allocate memory",
                "misc/ibvwrap.cc:257 NCCL WARN Call to ibv_create_qp failed with error Unknown"
                " error -12",
                "reg_mr_on_device:1 NCCL WARN NET/OFI Unable to register memory (type = 1) for"
                " device 0. RC: -12, Error: Cannot allocate memory",
            )
        ),
        (
            "register_rail_mr_buffer:617 NCCL WARN NET/OFI Unable to register memory (type = 2)"
            " for device 4. RC: -22, Error: Invalid argument",
            "nccl",
            "RDMA could not use a part of the memory (Invalid argument)",
        ),
        (
            f"process_completions:1541 NCCL WARN {UNRESPONSIVE}",
            "nccl-peer",
            "EFA reached another node, and no process there answered: its process has ended, or its"
            " machine has failed",
        ),
        (
            "process_cq:1 NCCL WARN NET/OFI Request 0x7f (SEND) completed with error: err: 103,"
            " flags: 0, prov_errno: 4124, strerror: Unresponsive receiver (connection previously"
            " established), len: 0",
            "nccl-peer",
            "another node does not answer over EFA any more: its process has ended, or its machine"
            " has failed",
        ),
        (
            "log_cq_error:1047 NCCL WARN NET/OFI Request 0x7f (SEND) completed with error: err:"
            " 113, flags: 0, prov_errno: 15, strerror: Unreachable remote (never received a"
            " response), len: 0",
            "nccl",
            "EFA never got an answer from the other node: the security group has to allow all"
            " traffic between the nodes",
        ),
        (
            "ofi_process_cq:120 NCCL WARN NET/OFI Request 0x1 completed with error. RC: 103."
            " Error: 13 (Unresponsive receiver. This error is typically caused by a peer hardware",
            "nccl-peer",
            "another node does not answer over EFA: its process has ended, or its machine has"
            " failed, or the security group has to allow all traffic between the nodes",
        ),
        (
            "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer"
            " node1<41234>",
            "nccl-peer",
            "the process at node1<41234> closed its connection: it ended first",
        ),
        (
            "misc/socket.cc:523 NCCL WARN Net : Connection closed by remote peer node1<41234>",
            "nccl-peer",
            "the process at node1<41234> closed its connection: it ended first",
        ),
        (
            "misc/socket.cc:46 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.5<41234>"
            " failed : Connection reset by peer",
            "nccl-peer",
            "the connection to the process at 10.0.0.5<41234> broke (Connection reset by peer)",
        ),
        (
            "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.5<41234> failed :"
            " Software caused connection abort",
            "nccl-peer",
            "the process at 10.0.0.5<41234> could not be reached (Software caused connection"
            " abort)",
        ),
        (
            "os/linux.cc:288 NCCL WARN socketPollConnect: connect to 10.0.0.5<41234> returned"
            " Connection refused, exceeded error retry count after 35 attempts",
            "nccl-peer",
            "the process at 10.0.0.5<41234> could not be reached (Connection refused)",
        ),
        (
            "misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.5<41234> returned"
            " 111(Connection refused) errno 115(Operation now in progress)",
            "nccl-peer",
            "the process at 10.0.0.5<41234> could not be reached (Connection refused)",
        ),
        (
            "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<41234>"
            " with error 12, opcode 0, len 0, vendor err 129",
            "nccl-peer",
            "RDMA to the process at 10.0.0.5<41234> got no answer (status 12, retries exceeded)",
        ),
        (
            "transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from peer"
            " 10.0.0.5<41234> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)"
            " vendor_err=129",
            "nccl-peer",
            "RDMA to the process at 10.0.0.5<41234> got no answer (status 12, retries exceeded)",
        ),
        (
            "transport/net_ib.cc:2449 NCCL WARN NET/IB: Got completion from peer 10.0.0.5<41234>"
            " with status=5 opcode=0 len=0 vendor err 249 (Recv)",
            "nccl-peer",
            "RDMA to the process at 10.0.0.5<41234> failed (status 5)",
        ),
        (
            "enqueue.cc:1 NCCL WARN Cuda failure 2 'out of memory'",
            "nccl",
            "NCCL had no room in the memory of a GPU",
        ),
        (
            "init.cc:16 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
            "nccl",
            "CUDA failed within NCCL (uncorrectable ECC error encountered)",
        ),
        (
            "misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment"
            " /dev/shm/nccl-bhdYrc (size 9637888), error: No space left on device (28)",
            "nccl",
            "NCCL's shared memory did not fit into /dev/shm",
        ),
        (
            "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-KzY8Qj to 33030532"
            " bytes",
            "nccl",
            "NCCL's shared memory did not fit into /dev/shm",
        ),
        (
            "init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device"
            " 101c0",
            "nccl",
            "ranks 1 and 0 use the same GPU",
        ),
        (
            "init.cc:1043 NCCL WARN Mismatched NCCL version detected : rank 0 version 22703 rank 8"
            " version 22105",
            "nccl",
            "ranks 0 and 8 have different versions of NCCL (22703 and 22105)",
        ),
        (
            "bootstrap.cc:430 NCCL WARN NCCL version mismatch with remote peer 10.0.0.5<41234>"
            " (local: 2.27.3, remote 2.21.5)",
            "nccl",
            "the ranks have different versions of NCCL (2.27.3 and 2.21.5)",
        ),
        (
            "bootstrap.cc:48 NCCL WARN Bootstrap : no socket interface found",
            "nccl",
            "NCCL found no network interface; does NCCL_SOCKET_IFNAME name one of this node?",
        ),
        (
            "bootstrap.cc:145 NCCL WARN Bootstrap Root : rank 3 of 16 ranks has already checked in",
            "nccl",
            "two processes are rank 3 of 16",
        ),
        (
            "bootstrap.cc:315 NCCL WARN Bootstrap Root : mismatch in info from procs, nranks 16 vs"
            " 8, nroots 1 vs 1, iroot 0 vs 0",
            "nccl",
            "the processes do not agree on the number of ranks (16 and 8)",
        ),
        (
            "transport/net_socket.cc:561 NCCL WARN NET/Socket : peer 10.0.0.5<41234> message"
            " truncated : receiving 8192 bytes instead of 4096. If you believe",
            "nccl",
            "the ranks exchanged different sizes: they did not call the same operation",
        ),
        (
            "misc/ibvwrap.cc:295 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed"
            " out, on dev mlx5_0:1",
            "nccl",
            "an RDMA connection could not be set up (Connection timed out)",
        ),
        (
            "misc/socket.cc:519 NCCL WARN socketPollConnect: connect returned Connection refused,"
            " exceeded error retry count (35)",
            "nccl-peer",
            "the process of another rank could not be reached (Connection refused)",
        ),
        (
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
            "nccl",
            "NCCL's shared memory did not fit into /dev/shm",
        ),
        (
            "bootstrap.cc:75 NCCL WARN Call to bind failed: Address already in use",
            "nccl",
            "the system refused NCCL's call of bind (Address already in use)",
        ),
        (
            "proxy.cc:1 NCCL WARN Call to pthread_create failed : Resource temporarily unavailable",
            "nccl",
            "the system refused NCCL's call of pthread_create (Resource temporarily unavailable)",
        ),
        (
            "transport/net_socket.cc:58 NCCL WARN NET/Socket : no interface found",
            "nccl",
            "NCCL found no network interface; does NCCL_SOCKET_IFNAME name one of this node?",
        ),
        (
            "transport/nvls.cc:254 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of"
            " size 2097152 : CUDA error 401 'the operation cannot be performed in the present"
            " state'.",
            "nccl",
            "NVLink SHARP does not work (the operation cannot be performed in the present state);"
            " is nvidia-fabricmanager active, or else set NCCL_NVLS_ENABLE=0",
        ),
        (
            "mnnvl.cc:74 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this"
            " system. Check the IMEX channel configuration",
            "nccl",
            "NVLink between nodes does not work; check IMEX (`nvidia-imex-ctl -N`), or set"
            " NCCL_MNNVL_ENABLE=0",
        ),
        (
            "transport/net_ib/common.cc:124 NCCL WARN NET/IB : mlx5_3:1 async fatal event: local"
            " catastrophic error",
            "nccl",
            "an RDMA device of the node failed (local catastrophic error)",
        ),
        (
            "transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : local catastrophic error",
            "nccl",
            "an RDMA device of the node failed (local catastrophic error)",
        ),
        (
            "open_cq:1 NCCL WARN NET/OFI Couldn't open CQ. RC: -12, ERROR: Cannot allocate memory",
            "nccl",
            "EFA's plugin for NCCL failed: Couldn't open CQ (Cannot allocate memory)",
        ),
        (
            "bootstrap.cc:114 NCCL WARN Invalid NCCL_COMM_ID, please use format: <ipv4>:<port>",
            "nccl",
            "NCCL_COMM_ID is not ADDRESS:PORT",
        ),
        (
            "init.cc:2501 NCCL WARN Invalid rank requested : 8/8",
            "nccl",
            "a process asked for rank 8 of 8",
        ),
        (
            "misc/argcheck.cc:204 NCCL WARN Broadcast : invalid root 8 (root should be in the 0..8"
            " range)",
            "nccl",
            "Broadcast was called with root 8 of 8 ranks",
        ),
    ],
)
def test_a_warning_of_nccl_in_words(warning: str, kind: str, text: str) -> None:
    found = read_warning(HEAD + warning)
    assert found is not None
    assert (found.kind, found.text) == (kind, text)


@pytest.mark.parametrize(
    "line",
    [
        "NCCL WARN NET/OFI Failed to initialize rdma protocol",
        'NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system hang',
        "NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        "NCCL WARN NET/IB : Got async event : GID table change",
        "NCCL WARN Call to ibv_open_device failed",
    ],
)
def test_a_warning_that_explains_no_failure_is_not_read(line: str) -> None:
    assert read_warning(HEAD + line) is None


def facts(*lines: str) -> list[NodeFact]:
    clues = Clues()
    for line in lines:
        if clues.reads(line) or clues.awaits(0):
            clues.feed(0, line)
        else:
            clues.skip(0, 1)
    return clues.facts(0)


CLOSED = f"{HEAD}misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n1<4>"
MEMORY = f"{HEAD}enqueue.cc:1 NCCL WARN Cuda failure 2 'out of memory'"


def test_the_first_cause_counts_and_a_consequence_only_without_one() -> None:
    later = MEMORY.replace("out of memory", "unspecified launch failure")
    (fact,) = facts(CLOSED, MEMORY, later)
    assert fact == NodeFact("nccl", f'NCCL had no room in the memory of a GPU: "{MEMORY}"')
    (fact,) = facts(CLOSED, CLOSED.replace("n1", "n2"))
    assert fact == NodeFact(
        "nccl-peer", f'the process at n1<4> closed its connection: it ended first: "{CLOSED}"'
    )


def test_a_warning_long_ago_is_no_reason() -> None:
    assert facts(MEMORY, *["step"] * RECENT) == []


PYTORCH = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
    "ProcessGroupNCCL.cpp:1333, internal error - please report this issue to the NCCL developers",
    "ncclInternalError: Internal check failed.",
    "Last error:",
)


@pytest.mark.parametrize(
    "prefix", ["", "[rank3]: ", "(RayWorkerVllm pid=7602) ERROR 04-07 x.py:45] "]
)
def test_the_last_error_that_pytorch_prints_is_a_reason(prefix: str) -> None:
    """NCCL prints no warning unless NCCL_DEBUG says so; PyTorch has the last one all the same."""
    lines = [prefix + line for line in PYTORCH]
    (known,) = facts(*lines, f"{prefix}socketFinalizeAccept: wrong type 4 != 3")
    assert known.kind == "nccl"
    assert known.text.startswith("two ranks chose different networks, NET/IB and NET/Socket;")
    assert known.text.endswith(': "socketFinalizeAccept: wrong type 4 != 3"')
    (unknown,) = facts(*lines, f"{prefix}Attribute busid of node nic not found")
    text = 'NCCL\'s last error: "Attribute busid of node nic not found"'
    assert unknown == NodeFact("nccl-peer", text)


def test_lines_of_other_ranks_are_not_taken_for_the_last_error() -> None:
    lines = [f"[rank3]: {line}" for line in PYTORCH]
    (fact,) = facts(*lines, "[rank1]: Traceback", "[rank3]: Attribute busid of node nic not found")
    assert fact.text == 'NCCL\'s last error: "Attribute busid of node nic not found"'


@pytest.mark.parametrize("line", ["", "Exception raised from checkNCCLError at x.cpp:2"])
def test_an_error_of_pytorch_without_one_of_nccl_is_no_reason(line: str) -> None:
    assert facts(*PYTORCH, line, "the next line") == []


def test_the_reason_of_a_run_has_the_cause_of_the_node_that_had_it() -> None:
    """The others only lost their connections to it."""
    names = ["node0", "node1"]
    clues = Clues()
    clues.feed(0, CLOSED)
    clues.feed(1, MEMORY)
    examined = [NodeExamined(rank, 1, True, tuple(clues.facts(rank))) for rank in (0, 1)]
    verdict = Verdict("failed", 1, 0, exit_reason("node0", 1), is_jobs_own=True)
    explained = explain(verdict, names, examined)
    expected = f'exited with 1: NCCL had no room in the memory of a GPU: "{MEMORY}"'
    assert explained.verdict.reason == f"node1: {expected}"
    (other,) = explained.followed
    assert other.nodes == ("node0",)
    assert other.text.startswith("exited with 1: the process at n1<4> closed its connection")


def test_the_reader_of_a_run_reads_the_line_after_last_error_also_in_another_event() -> None:
    plan = make_plan(nodes=1)
    reader = OutputReader(plan)
    for offset, text in enumerate((*PYTORCH, "socketFinalizeAccept: wrong type 4 != 3")):
        reader.read(Output(0, "stderr", text, offset=offset))
    reader.read(NodeExamined(0, 1, is_own_end=True, facts=()))
    verdict = Verdict("failed", 1, 0, exit_reason("node0", 1), is_jobs_own=True)
    _, verdict = reader.end(verdict)
    begin = "node0: exited with 1: two ranks chose different networks, NET/IB and NET/Socket"
    assert verdict.reason.startswith(begin)
