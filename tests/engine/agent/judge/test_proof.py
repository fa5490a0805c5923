"""Whether RDMA was used, read from NCCL's lines: each network, and each way to lose it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.judge.failures import Finding
from engine.agent.judge.rdma_check import Proof
from engine.contract.plan import NetworkPlan
from tests.engine.bare_plans import bare_node

LOGS = Path(__file__).parents[2] / "nccl_logs"
NODES = [bare_node(0, "10.0.0.5"), bare_node(1, "10.0.0.6")]
EFA = "`fi_info -p efa` and `ls /dev/infiniband` there, in the job's container too"


def network(promises: str = "efa", verify: str = "auto", **more: Any) -> NetworkPlan:
    efa = promises == "efa"
    values = {"promises": promises, "interfaces": 4 if efa else 0, "gpudirect": True}
    return NetworkPlan(**{**values, "verify": verify, **more})


def lines(name: str) -> list[str]:
    """The lines of a log without its head, which says where the format is from."""
    return (LOGS / f"{name}.log").read_text().partition("\n\n")[2].splitlines()


def read(name: str, plan: NetworkPlan, printed_on: int = 0) -> list[Finding]:
    """What a log shows that one node printed, its end included."""
    proof = Proof(plan, NODES)
    found = [one for line in lines(name) for one in proof.feed(printed_on, line)]
    return found + proof.final_findings()


def proofs(*texts: str) -> list[Finding]:
    return sorted(Finding("proof", rank, f"node{rank} {text}") for rank in (0, 1) for text in texts)


GDR = "uses GPUDirect RDMA"
HOST_MEMORY = "transfers data through the host's memory, without GPUDirect RDMA"


@pytest.mark.parametrize("log", ["efa-gdr", "efa-gdr-old-plugin"])
def test_efa_with_gpudirect_is_proven_on_each_node(log: str) -> None:
    assert sorted(read(log, network())) == proofs("uses EFA: 4 interfaces", GDR)


@pytest.mark.parametrize(
    ("log", "promises", "text"),
    [
        ("infiniband", "infiniband", "uses InfiniBand: 2 IB devices"),
        ("ibext", "infiniband", "uses InfiniBand: 2 IB devices"),
        ("roce", "roce", "uses RoCE: 2 RoCE devices"),
    ],
)
def test_other_rdma_is_proven_on_each_node(log: str, promises: str, text: str) -> None:
    assert sorted(read(log, network(promises))) == proofs(text, GDR)


def test_the_line_of_ti_one_proves_rdma_on_the_node_that_printed_it() -> None:
    proofs_ = [Finding("proof", 1, f"node1 {text}") for text in ("uses RoCE", GDR)]
    assert read("ti-one", network("roce"), printed_on=1) == proofs_


def test_a_connection_through_the_hosts_memory_is_a_fault_where_the_type_can_do_without() -> None:
    look = (
        "check `cat /sys/class/infiniband/*/device/p2p` there, and whether NVIDIA's driver was"
        " loaded before EFA's"
    )
    found = [one for one in read("efa-no-gdr", network()) if one.level == "fault"]
    assert found == [
        Finding(
            "fault",
            rank,
            f"node{rank} {HOST_MEMORY}: `Channel 00/0 :"
            f" {way} [receive] via NET/Libfabric/0`; {look}",
        )
        for rank, way in ((0, "3[1] -> 0[0]"), (1, "1[1] -> 2[0]"))
    ]
    allowed = read("efa-no-gdr", network(gpudirect=False))
    assert sorted(allowed) == proofs("uses EFA: 4 interfaces", HOST_MEMORY)


def test_too_few_interfaces_are_a_fault_of_their_node() -> None:
    found = read("efa-too-few", network())
    (fault,) = (one for one in found if one.level == "fault")
    assert fault == Finding(
        "fault",
        1,
        "node1 uses 2 of 4 EFA interfaces: `NET/OFI Selected provider is efa, fabric is efa-direct"
        f" (found 2 nics)`; check {EFA}",
    )


def test_a_missing_plugin_is_named_as_the_cause_of_sockets() -> None:
    assert read("missing-plugin", network()) == [
        Finding(
            "fault",
            rank,
            f"node{rank} uses sockets instead of EFA: `Using network Socket`, after `NET/Plugin:"
            " Could not find: libnccl-net.so`; check LD_LIBRARY_PATH there: it needs aws-ofi-nccl"
            " (/opt/amazon/ofi-nccl/lib)",
        )
        for rank in (0, 1)
    ]


def test_sockets_without_a_word_why() -> None:
    assert read("sockets", network())[0] == Finding(
        "fault",
        0,
        f"node0 uses sockets instead of EFA: `Using network Socket`; check {EFA}",
    )
    assert read("sockets", network("infiniband"))[1] == Finding(
        "fault",
        1,
        "node1 uses sockets instead of InfiniBand: `Using network Socket`; check `ibv_devinfo`"
        " there, and NCCL_IB_HCA and NCCL_IB_DISABLE",
    )


def test_one_node_that_falls_back_is_named_though_another_printed_its_lines() -> None:
    assert read("one-falls-back", network()) == [
        Finding("proof", 0, "node0 uses EFA: 4 interfaces"),
        Finding(
            "fault",
            1,
            "node1 uses sockets instead of EFA: `Using network Socket`, after `NET/OFI No eligible"
            f" providers were found`; check {EFA}",
        ),
    ]


def test_a_container_without_devices() -> None:
    (fault,) = read("fi-getinfo", network())
    assert fault.text == (
        "node0 uses sockets instead of EFA: `Using network Socket`, after `NET/OFI OFI"
        f" fi_getinfo() call failed: No data available`; check {EFA}"
    )


def test_another_provider_of_libfabric() -> None:
    assert read("tcp-provider", network()) == [
        Finding(
            "fault",
            0,
            "node0 uses libfabric's provider tcp;ofi_rxm instead of EFA: `NET/OFI Selected Provider"
            f" is tcp;ofi_rxm (found 1 nics)`; check FI_PROVIDER, and {EFA}",
        )
    ]


def test_another_network_than_the_promised_and_one_that_nobody_knows() -> None:
    (fault,) = read_line("node1:1:2 [0] NCCL INFO", "Using network IB", network())
    assert (fault.level, fault.rank) == ("fault", 1)
    assert fault.text.startswith("node1 uses NCCL's network IB instead of EFA: ")
    proof = Proof(network(), NODES)
    assert proof.feed(0, "NCCL INFO Using network Slingshot") == []
    text = "node0: NCCL's network Slingshot is not known to be EFA"
    assert proof.final_findings() == [Finding("warning", 0, text)]


COMM = "comm 0x55d0 rank 0 nRanks 16 nNodes {} localRanks 8 localRank 0 MNNVL 0"


def read_line(prefix: str, words: str, plan: NetworkPlan) -> list[Finding]:
    """What a line shows once NCCL has said that the process reaches other nodes."""
    proof = Proof(plan, NODES)
    assert proof.feed(0, f"{prefix} {words}") == []
    return proof.feed(0, f"{prefix} {COMM.format(2)}")


def test_colours_and_full_host_names_do_not_hide_a_line() -> None:
    line = "\x1b[36m(Worker pid=7, ip=10.0.0.6)\x1b[0m ip-10-0-0-6.ec2.internal:1:2 [3] NCCL INFO"
    (fault,) = read_line(line, "Using network Socket\x1b[0m", network())
    assert fault.rank == 1
    assert "`Using network Socket`" in fault.text


@pytest.mark.parametrize("log", ["sockets", "efa-no-gdr", "efa-too-few", "tests-one-node"])
def test_verify_warn_warns_and_off_says_nothing(log: str) -> None:
    warned = read(log, network(verify="warn"))
    assert {one.level for one in warned} - {"proof"} == {"warning"}
    assert read(log, network(verify="off")) == []


@pytest.mark.parametrize("log", ["sockets", "efa-no-gdr", "one-falls-back"])
def test_a_preset_without_rdma_has_nothing_to_prove(log: str) -> None:
    assert read(log, network("")) == []


def test_require_fails_a_run_without_any_line() -> None:
    assert read("tests-two-nodes", network()) == []
    assert read("tests-two-nodes", network(verify="require")) == [
        Finding(
            "fault",
            0,
            "no line of NCCL shows EFA, which `verify: require` needs; check that the job uses NCCL"
            " there, has NCCL_DEBUG=INFO, and prints the output of NCCL",
        )
    ]
    assert read("efa-gdr", network(verify="require")) == read("efa-gdr", network())


def test_require_names_the_nodes_of_which_nothing_was_seen() -> None:
    proof = Proof(network("roce", verify="require"), NODES)
    (line,) = lines("ti-one")
    assert [one.level for one in proof.feed(0, line)] == ["proof", "proof"]
    assert proof.final_findings() == [
        Finding(
            "fault",
            1,
            "no line of NCCL shows RoCE on node1, which `verify: require` needs; check that the job"
            " uses NCCL there, has NCCL_DEBUG=INFO, and prints the output of NCCL",
        )
    ]


TRAP = (
    "all {} ranks of nccl-tests ran on node0 (ip-10-0-0-5), of 2 nodes: the launcher ignored the"
    " hostfile; check the options of mpirun (`--hostfile $DSTACK_HOSTFILE`)"
)


def test_more_ranks_than_gpus_on_one_node_are_a_fault_at_once() -> None:
    proof = Proof(network(""), NODES)
    found = [proof.feed(0, line) for line in lines("tests-one-node")]
    assert [one for each in found for one in each] == [Finding("fault", 0, TRAP.format(16))]
    assert found[-3]  # at the line that ends the table
    assert proof.final_findings() == []


def test_ranks_that_would_fit_are_judged_at_the_end() -> None:
    proof = Proof(network(""), NODES)
    assert not any(proof.feed(0, line) for line in lines("tests-one-node-old"))
    assert proof.final_findings() == [Finding("fault", 0, TRAP.format(8))]


def test_a_test_of_its_own_on_each_node_is_no_trap() -> None:
    proof = Proof(network(""), NODES)
    for line in lines("tests-one-node-old"):
        assert not proof.feed(0, line)
        assert not proof.feed(1, line.replace("ip-10-0-0-5", "ip-10-0-0-6"))
    assert proof.final_findings() == []


def test_ranks_on_one_worker_alone_are_no_trap_where_the_plan_says_so() -> None:
    worker = replace(NODES[1], processes=8)
    proof = Proof(network(""), [NODES[0], worker])
    assert not any(proof.feed(0, line) for line in lines("tests-one-node-old"))
    assert proof.final_findings() == []


@given(st.lists(st.text() | st.text().map("NCCL INFO ".__add__), max_size=20))
def test_no_line_breaks_it(texts: list[str]) -> None:
    proof = Proof(network(verify="require"), NODES)
    for text in texts:
        proof.feed(1, text)
    assert proof.final_findings()


P2P = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
SHM = "Channel 01 : 0[0] -> 1[1] via SHM/direct/direct"
SOCKET = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
RANKS = "ncclCommInitRank comm 0x55d0 rank 0 nranks {} cudaDev 0 nvmlDev 0 busId 53000 - Init"
TCP = "NET/OFI Selected provider is tcp, fabric is tcp (found 1 nics)"


def of_process(plan: NetworkPlan, *words: str) -> tuple[list[str], list[str]]:
    """Levels and texts of what one process of node0 shows as it prints, and at the end."""
    proof = Proof(plan, NODES)
    lines = [f"ip-10-0-0-5:41:77 [0] NCCL INFO {text}" for text in words]
    found = [one for line in lines for one in proof.feed(0, line)]
    end = [*proof.final_findings(), *proof.observations()]
    return [one.level for one in found], [f"{one.level}: {one.text}" for one in end]


@pytest.mark.parametrize("network_line", ["Using network Socket", TCP])
@pytest.mark.parametrize(
    "words",
    [
        (COMM.format(1), P2P),
        (COMM.format(1), SOCKET.replace("8[0]", "1[1]")),  # a node's GPUs without P2P
        (P2P, RANKS.format(8)),  # NCCL before 2.20
        (SHM, RANKS.format(2)),
        (COMM.format(1), "Using network Socket", COMM.format(1)),
    ],
)
def test_a_communicator_within_a_node_is_no_fallback(
    network_line: str, words: tuple[str, ...]
) -> None:
    found, end = of_process(network(), network_line, *words)
    assert found == []
    assert [line for line in end if not line.startswith("proof: ")] == []


@pytest.mark.parametrize("network_line", ["Using network Socket", TCP])
@pytest.mark.parametrize(
    "words",
    [
        (COMM.format(2),),
        (COMM.format(1), P2P, COMM.format(2)),  # tensor parallel first, then data parallel
        (RANKS.format(16),),
        (SOCKET,),
        (P2P, SOCKET),
    ],
)
def test_a_communicator_over_nodes_without_rdma_is_a_fallback(
    network_line: str, words: tuple[str, ...]
) -> None:
    found, end = of_process(network(), network_line, *words)
    assert found == ["fault"]
    assert end == []


def test_a_torn_number_of_nodes_decides_nothing() -> None:
    torn = COMM.format(1).replace(" localRanks", "localRanks")
    found, _ = of_process(network(), "Using network Socket", torn, SOCKET)
    assert found == ["fault"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((COMM.format(2), SOCKET, P2P), "sockets (NET/Socket), and P2P/CUMEM within the node"),
        ((COMM.format(1), P2P, SHM), "P2P/CUMEM and shared memory within the node"),
        (
            (COMM.format(1), "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0"),
            "NET/Socket within the node",
        ),
        (("Channel 00/0 : 0[0] -> 8[0] [receive] via NET/IB/0/GDRDMA",), "NET/IB"),
        (("Using network Socket",), "NCCL's network Socket, without a connection"),
    ],
)
@pytest.mark.parametrize("plan", [network(""), network(verify="off")])
def test_what_was_seen_is_shown_where_nothing_has_to_be_proven(
    plan: NetworkPlan, words: tuple[str, ...], text: str
) -> None:
    assert of_process(plan, *words) == ([], [f"proof: node0 uses {text}"])


def test_connections_that_need_a_flush_or_none_have_gpudirect() -> None:
    way = "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA/flush={}"
    provider = "NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)"
    for kind in ("None", "Always", "Required"):
        found, end = of_process(network(), provider, *[way.format(kind)] * 5)
        assert found == ["proof", "proof"]
        assert end == []
