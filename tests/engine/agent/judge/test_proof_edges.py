"""Single lines of NCCL: what each says of its node, and which say nothing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.agent.judge.failures import Finding
from engine.agent.judge.rdma_check import Proof
from engine.contract.node_plan import NodePlan
from engine.contract.plan import NetworkPlan
from tests.engine.agent.judge.test_proof import EFA, HOST_MEMORY, NODES, TRAP, network
from tests.engine.bare_plans import bare_node

IB = "`ibv_devinfo` there, and NCCL_IB_HCA and NCCL_IB_DISABLE"
PLUGIN = "LD_LIBRARY_PATH there: it needs aws-ofi-nccl (/opt/amazon/ofi-nccl/lib)"
WAY = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0"
RANK = "#  Rank {:>2} Group  0 Pid   4100 on ip-10-0-0-5 device  0 [0000:53:00] NVIDIA H100"


def said(plan: NetworkPlan, *words: str, host: str = "ip-10-0-0-5") -> list[Finding]:
    """What node0's lines show, printed on node1, and their end."""
    proof = Proof(plan, NODES)
    lines = [f"{host}:41:77 [0] NCCL INFO {text}" for text in words]
    return [one for line in lines for one in proof.feed(1, line)] + proof.final_findings()


@pytest.mark.parametrize(
    ("promises", "cause", "look_at"),
    [
        ("efa", "NET/OFI No eligible providers were found", EFA),
        ("efa", "NET/OFI OFI fi_getinfo() call failed: No data available", EFA),
        ("efa", "NET/OFI aws-ofi-nccl initialization failed", EFA),
        ("efa", "NET/Plugin: Could not find: libnccl-net.so", PLUGIN),
        ("efa", "NET/Plugin : No plugin found (libnccl-net.so)", PLUGIN),
        ("efa", "NET/Plugin: Plugin load (libnccl-net.so) returned 2", PLUGIN),
        ("infiniband", "NET/IB : No device found", IB),
        ("roce", "NET/IB : No device found", IB),
    ],
)
def test_what_made_nccl_fall_back_is_named(promises: str, cause: str, look_at: str) -> None:
    title = {"efa": "EFA", "infiniband": "InfiniBand", "roce": "RoCE"}[promises]
    second = "NET/IB : No device found"  # the first cause counts
    assert said(network(promises), cause, second, "Using network Socket") == [
        Finding(
            "fault",
            0,
            f"node0 uses sockets instead of {title}: `Using network Socket`, after `{cause}`;"
            f" check {look_at}",
        )
    ]


def test_another_link_layer_than_the_promised_is_a_warning() -> None:
    devices = "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.5<0>"
    assert said(network("infiniband"), devices, "Using network IB") == [
        Finding("warning", 0, "node0 uses RoCE, not InfiniBand, according to its devices")
    ]
    others = devices.replace("RoCE", "IB")
    assert said(network("roce"), others, "Using network IB") == [
        Finding("warning", 0, "node0 uses InfiniBand, not RoCE, according to its devices")
    ]
    assert said(network("roce"), devices, "Using network IB") == [
        Finding("proof", 0, "node0 uses RoCE: 2 RoCE devices")
    ]


def test_one_connection_through_the_hosts_memory_is_told_at_the_end() -> None:
    provider = "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)"
    *proof, fault = said(network(), provider, WAY)
    assert proof == [Finding("proof", 0, "node0 uses EFA: 4 interfaces")]
    assert (fault.level, fault.rank) == ("fault", 0)
    assert fault.text.startswith(f"node0 {HOST_MEMORY}: `{WAY}`; check `cat /sys/class/")
    *_, allowed = said(network(gpudirect=False), provider, WAY)
    assert allowed == Finding("proof", 0, f"node0 {HOST_MEMORY}")


@pytest.mark.parametrize(
    "words", ["Using network Socket", "NET/OFI Selected provider is tcp, fabric is tcp"]
)
def test_what_was_found_of_a_node_is_no_proof_later(words: str) -> None:
    later = ["NET/OFI Selected provider is efa, fabric is efa (found 4 nics)", WAY + "/GDRDMA"]
    assert [(one.level, one.rank) for one in said(network(), words, *later)] == [("fault", 0)]


def test_without_a_provider_a_connection_proves_efa_only_where_the_node_has_it() -> None:
    (proof, direct) = said(network(), WAY + "/GDRDMA")
    assert (proof.text, direct.text) == ("node0 uses EFA", "node0 uses GPUDirect RDMA")
    assert said(network(interfaces=0), WAY + "/GDRDMA") == []


def test_devices_of_two_link_layers_are_told_apart_by_their_numbers() -> None:
    devices = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.5<0>"
    way = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/{}/GDRDMA"
    assert said(network("infiniband"), devices, "Using network IB") == []
    assert said(network("infiniband"), devices, "Using network IB", way.format(0)) == [
        Finding("proof", 0, "node0 uses InfiniBand: 2 IB devices"),
        Finding("proof", 0, "node0 uses GPUDirect RDMA"),
    ]
    assert said(network("infiniband"), devices, way.format(1)) == [
        Finding("warning", 0, "node0 uses RoCE, not InfiniBand, according to its devices")
    ]


def test_a_network_that_nobody_knows_is_told_where_nothing_else_was_found() -> None:
    unknown = "Using network Slingshot"
    text = "node0: NCCL's network Slingshot is not known to be EFA"
    assert said(network(), unknown) == [Finding("warning", 0, text)]
    (fault,) = said(network(), "Using network Socket", unknown)
    assert fault.level == "fault"


def test_all_nodes_of_which_nothing_was_seen_are_named() -> None:
    nodes = [bare_node(rank, f"10.0.0.{rank + 5}") for rank in range(3)]
    proof = Proof(network(verify="require"), nodes)
    proof.feed(0, f"ip-10-0-0-5:41:77 [0] NCCL INFO {WAY}/GDRDMA")
    (fault,) = proof.final_findings()
    assert fault.rank == 1
    assert fault.text.startswith("no line of NCCL shows EFA on node1, node2, which `verify: req")


def at_once(*lines: tuple[int, str]) -> list[int]:
    """How many findings each line brings; lines are of processes of node0."""
    proof = Proof(network(), NODES)
    return [
        len(proof.feed(0, f"ip-10-0-0-5:{process}:77 [0] NCCL INFO {words}"))
        for process, words in lines
    ]


def test_too_few_interfaces_are_believed_of_the_only_process_or_of_two() -> None:
    few = "NET/OFI Selected provider is efa, fabric is efa (found 3 nics)"
    assert at_once((41, few)) == [1]
    assert at_once((42, "Bootstrap"), (41, few), (41, few), (42, few)) == [0, 0, 0, 1]


def test_four_connections_of_one_process_are_no_accident() -> None:
    proven = (41, "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)")
    assert at_once(proven, *[(41, WAY)] * 5) == [0, 1, 0, 0, 1, 0]  # the first is EFA's proof
    assert at_once(proven, *[(41, WAY)] * 3, (42, WAY)) == [0, 1, 0, 0, 0]
    assert at_once(proven, (41, f"{WAY}/GDRDMA"), *[(41, WAY)] * 4) == [0, 2, 0, 0, 0, 0]


def test_every_node_that_goes_through_its_hosts_memory_is_named() -> None:
    proof = Proof(network(), NODES)
    for host, count in (("ip-10-0-0-5", 1), ("ip-10-0-0-6", 2)):
        for _ in range(count):
            proof.feed(0, f"{host}:41:77 [0] NCCL INFO {WAY}")
    assert [(one.level, one.rank) for one in proof.final_findings()] == [("fault", 0), ("fault", 1)]


@pytest.mark.parametrize(
    ("indirect", "told"),
    [
        ([42], 0),  # beside many direct ones of two processes: put together from two lines
        ([42, 42, 42, 42], 1),
        ([41], 1),  # the only process that prints: nothing tears its lines
    ],
)
def test_few_connections_beside_direct_ones_of_two_processes_are_torn(
    indirect: list[int], told: int
) -> None:
    proof = Proof(network(), NODES)
    lines = [(41, f"{WAY}/GDRDMA")] * 8 + [(process, WAY) for process in indirect]
    for process, words in lines:
        proof.feed(0, f"ip-10-0-0-5:{process}:77 [0] NCCL INFO {words}")
    assert len(proof.final_findings()) == told


def test_a_host_that_nobody_knows_is_the_printing_node_until_a_known_one_is_seen() -> None:
    sockets = "container:41:77 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
    proof = Proof(network(), NODES)
    (fault,) = proof.feed(1, sockets)
    assert fault.rank == 1
    proof = Proof(network(), NODES)
    proof.feed(1, "ip-10-0-0-6:41:77 [0] NCCL INFO Bootstrap")
    assert proof.feed(1, sockets) == []
    # Behind a line that was torn right in front of it, a known host is found.
    (fault,) = proof.feed(1, f"0x7fip-10-0-0-5{sockets.removeprefix('container')}")
    assert fault.rank == 0


def ends(*lines: str, nodes: Sequence[NodePlan] = NODES) -> tuple[list[Finding], list[Finding]]:
    """What is found at the lines, and at the end."""
    proof = Proof(network(""), nodes)
    return [one for line in lines for one in proof.feed(0, line)], proof.final_findings()


def test_a_table_that_breaks_off_in_its_ranks_is_judged_at_the_end() -> None:
    ranks = [RANK.format(number) for number in range(16)]
    assert ends(*ranks) == ([], [Finding("fault", 0, TRAP.format(16))])
    assert ends(*ranks[:1]) == ([], [])  # a test of one GPU


def test_ranks_that_begin_with_0_again_are_of_the_next_table() -> None:
    ranks = [RANK.format(number) for number in range(8)]
    assert ends(*ranks, *ranks) == ([], [Finding("fault", 0, TRAP.format(8))])


def test_without_gpus_of_the_nodes_the_end_decides() -> None:
    bare = [replace(node, environment={}) for node in NODES]
    ranks = [RANK.format(number) for number in range(16)]
    assert ends(*ranks, "#", nodes=bare) == ([], [Finding("fault", 0, TRAP.format(16))])


def test_one_rank_of_the_plan_is_enough_for_a_node_to_be_wanted() -> None:
    ranks = [RANK.format(number) for number in range(2)]
    first, second = replace(NODES[0], processes=2), replace(NODES[1], processes=1)
    assert ends(*ranks, "#", nodes=[first, NODES[1]]) == ([], [])
    assert ends(*ranks, "#", nodes=[first, second]) == ([], [Finding("fault", 0, TRAP.format(2))])


def test_what_an_earlier_supervisor_found_of_a_node_is_not_found_again() -> None:
    few = "NET/OFI Selected provider is efa, fabric is efa (found 3 nics)"
    ranks = [RANK.format(number) for number in range(16)]
    lines = [f"ip-10-0-0-5:41:77 [0] NCCL INFO {text}" for text in (few, *[WAY] * 4)] + ranks
    first = Proof(network(), NODES)
    found = [one for line in lines for one in first.feed(0, line)]
    found += first.final_findings()
    assert len(found) == 4  # few interfaces, a proof, the host's memory, one host
    resumed = Proof(network(), NODES)
    for finding in found:
        resumed.restore(finding)
    resumed.restore(found[0])  # in any order
    assert [one for line in lines for one in resumed.feed(0, line)] == []
    assert resumed.final_findings() == []


def test_ranks_on_one_host_are_a_fault_of_that_node_by_its_full_name_too() -> None:
    for host in ("ip-10-0-0-6", "ip-10-0-0-6.ec2.internal"):
        ranks = [RANK.format(number).replace("ip-10-0-0-5", host) for number in range(16)]
        (fault,) = ends(*ranks)[1]
        assert fault.rank == 1


def test_every_process_with_a_wrong_network_is_asked_at_the_end() -> None:
    proof = Proof(network(), NODES)
    for host in ("ip-10-0-0-5", "ip-10-0-0-6"):
        assert proof.feed(0, f"{host}:41:77 [0] NCCL INFO Using network Socket") == []
    assert [(one.level, one.rank) for one in proof.final_findings()] == [("fault", 0), ("fault", 1)]
