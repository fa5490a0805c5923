"""What no change of a golden plan may change: ranks, hosts, and where ranks meet.

Renewing golden files makes their tests pass, whatever the code does. These facts are written out
by hand and read from no golden file: each plan keeps them.
"""

import json
from collections.abc import Callable

import pytest

from engine.contract.node_plan import NodePlan
from engine.contract.plan import LaunchPlan
from tests.engine.golden import CASES, plan_of

HEAD = "10.213.1.10"
NETWORK_ORDER = (10, 11, 12, 16, 17, 18, 22, 23, 24, 13, 15, 20, 25, 14, 19, 21)
"""Last numbers of the 16 nodes' addresses: those below one switch next to each other."""

IPS = {size: [f"10.213.1.{n}" for n in NETWORK_ORDER[:size]] for size in (1, 2, 16)}
NODES_OF_ELASTIC = 4  # at most, as its run file says
RANKS_OF_A_NODE = {"torchrun-elastic": 2, "mpi-mpich": 4}
"""As the run files say; 8 for others: one per GPU."""


def ips(case: str, size: int) -> list[str]:
    return IPS[size][:NODES_OF_ELASTIC] if case == "torchrun-elastic" else IPS[size]


def per_node(case: str) -> int:
    return RANKS_OF_A_NODE.get(case, 8)


def file(node: NodePlan, name: str) -> str:
    (text,) = (text for path, text in node.files.items() if path.endswith(f"/{name}"))
    return text


def word_after(script: str, option: str) -> str:
    """The word behind the only `option` of a script."""
    words = script.split()
    (place,) = (index for index, word in enumerate(words) if word == option)
    return words[place + 1]


@pytest.mark.parametrize(("case", "size"), CASES)
def test_every_node_knows_its_rank_and_all_nodes(case: str, size: int) -> None:
    plan, addresses = plan_of(case, size), ips(case, size)
    assert [node.rank for node in plan.nodes] == list(range(len(addresses)))
    assert [node.private_ip for node in plan.nodes] == addresses
    assert [node.name for node in plan.nodes] == [
        f"node{int(address.rpartition('.')[2]) - 10}" for address in addresses
    ]
    for rank, node in enumerate(plan.nodes):
        for prefix in ("DSTACK", "GPUCTL"):
            said = {
                name: node.environment[f"{prefix}_{name}"]
                for name in ("NODE_RANK", "NODES_NUM", "MASTER_NODE_IP", "NODES_IPS", "GPUS_NUM")
            }
            assert said == {
                "NODE_RANK": str(rank),
                "NODES_NUM": str(len(addresses)),
                "MASTER_NODE_IP": HEAD,
                "NODES_IPS": "\n".join(addresses),
                "GPUS_NUM": str(8 * len(addresses)),
            }


@pytest.mark.parametrize(("case", "size"), CASES)
def test_every_nodes_hostfile_has_every_host_with_its_ranks(case: str, size: int) -> None:
    plan = plan_of(case, size)
    form = "{}:{}\n" if case in ("mpi-intel", "mpi-mpich") else "{} slots={}\n"
    hosts = ips(case, size)[1:] if case == "mpi-intel" else ips(case, size)  # without its launcher
    expected = "".join(form.format(host, per_node(case)) for host in hosts)
    assert {file(node, "hostfile") for node in plan.nodes} == {expected}
    where = plan.nodes[0].environment["DSTACK_MPI_HOSTFILE"]
    assert plan.nodes[0].files[where] == expected


COUNTED = ("mpi", "mpi-mpich", "mpi-intel", "nccl-tests", "torchrun", "horovod", "deepspeed")


@pytest.mark.parametrize(("case", "size"), CASES)
def test_ranks_are_counted_where_a_launcher_starts_a_fixed_number(case: str, size: int) -> None:
    plan = plan_of(case, size)
    expected = [per_node(case) if case in COUNTED else 0] * len(plan.nodes)
    if case == "mpi-intel":
        expected[0] = 0
    assert [node.processes for node in plan.nodes] == expected


def of(*cases: str) -> Callable[..., pytest.MarkDecorator]:
    return pytest.mark.parametrize(("case", "size"), [one for one in CASES if one[0] in cases])


def order_of(plan: LaunchPlan) -> tuple[str, str]:
    return plan.startup_order, plan.stop_criteria


@of("torchrun")
def test_torchrun_meets_at_node_0_with_ranks_in_the_order_of_nodes(case: str, size: int) -> None:
    for rank, node in enumerate(plan_of(case, size).nodes):
        said = {name: text for name, text in node.environment.items() if name.startswith("PET_")}
        assert said == {
            "PET_NNODES": str(size),
            "PET_NPROC_PER_NODE": "8",
            "PET_NODE_RANK": str(rank),
            "PET_RDZV_BACKEND": "static",
            "PET_MASTER_ADDR": HEAD,
            "PET_MASTER_PORT": "29500",
            "PET_RDZV_ID": "torch-000000",
            "PET_MAX_RESTARTS": "0",
            "PET_LOCAL_ADDR": node.private_ip,
        }
        assert node.environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] == "[rank$rank]:"
        assert '( "${gpuctl_torchrun[@]}" --no_python bash ' in node.script


@of("torchrun-elastic")
def test_elastic_torchrun_meets_at_node_0_and_numbers_nodes_itself(case: str, size: int) -> None:
    for rank, node in enumerate(plan_of(case, size).nodes):
        said = {name: text for name, text in node.environment.items() if name.startswith("PET_")}
        assert said == {
            "PET_NNODES": {1: "1", 2: "1:2", 16: "1:4"}[size],
            "PET_NPROC_PER_NODE": "2",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{HEAD}:29500",
            "PET_RDZV_CONF": f"is_host={1 if rank == 0 else 0}",
            "PET_RDZV_ID": "torch-000000",
            "PET_MAX_RESTARTS": "3",
            "PET_LOCAL_ADDR": node.private_ip,
        }


@of("ddp")
def test_ddp_meets_at_node_0_and_workers_wait_for_its_port(case: str, size: int) -> None:
    plan = plan_of(case, size)
    for rank, node in enumerate(plan.nodes):
        said = {name: node.environment[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
        assert said == {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": HEAD}
        assert node.environment["MASTER_PORT"] == "23456"
    assert order_of(plan) == ("any" if size == 1 else "master-first", "all-done")
    assert (plan.ready and plan.ready.port) == (None if size == 1 else 23456)


@of("deepspeed")
def test_deepspeed_is_started_on_node_0_for_all_hosts(case: str, size: int) -> None:
    plan = plan_of(case, size)
    script, others = plan.nodes[0].script, [node.script for node in plan.nodes[1:]]
    where = plan.nodes[0].environment["GPUCTL_HOSTFILE"]
    assert word_after(script, "--hostfile") == where
    assert word_after(script, "--master_addr") == HEAD
    assert word_after(script, "--master_port") == "29500"
    assert word_after(script, "--launcher") == "pdsh"
    # It starts its ranks by pdsh where there is another node, and without it where there is none.
    assert ("command -v pdsh" in script) == (size > 1)
    assert not any("deepspeed --" in other for other in others)
    assert order_of(plan) == ("workers-first", "master-done")


@of("horovod")
def test_horovod_is_started_on_node_0_for_all_hosts(case: str, size: int) -> None:
    plan = plan_of(case, size)
    script, others = plan.nodes[0].script, [node.script for node in plan.nodes[1:]]
    assert word_after(script, "-np") == str(8 * size)
    assert word_after(script, "-H") == ",".join(f"{ip}:8" for ip in IPS[size])
    # On one node Horovod takes `lo`, and refuses another interface.
    assert ("--network-interfaces" in script) == (size > 1)
    if size > 1:
        assert word_after(script, "--network-interfaces") == "ens32"
    assert not any("horovodrun -" in other for other in others)
    assert order_of(plan) == ("workers-first", "master-done")


@of("mpi", "mpi-mpich", "mpi-intel", "nccl-tests")
def test_mpirun_is_started_on_node_0_for_all_ranks(case: str, size: int) -> None:
    plan = plan_of(case, size)
    script, others = plan.nodes[0].script, [node.script for node in plan.nodes[1:]]
    nodes_with_ranks = size - 1 if case == "mpi-intel" else size
    is_hydra = case in ("mpi-mpich", "mpi-intel")
    ranks = word_after(script, "-n" if is_hydra else "-np")
    assert ranks == str(per_node(case) * nodes_with_ranks)
    hostfile = word_after(script, "-f" if is_hydra else "--hostfile")
    assert hostfile == plan.nodes[0].environment["GPUCTL_HOSTFILE"]
    assert not any("gpuctl_ranks" in other for other in others)
    assert order_of(plan) == ("workers-first", "master-done")


@of("ps-worker")
def test_tensorflow_has_one_server_on_node_0_and_all_others_work(case: str, size: int) -> None:
    plan = plan_of(case, size)
    servers, workers = [f"{HEAD}:2222"], [f"{ip}:2222" for ip in IPS[size][1:]]
    for rank, node in enumerate(plan.nodes):
        assert json.loads(node.environment["TF_CONFIG"]) == {
            "cluster": {"ps": servers, "worker": workers},
            "task": {"type": "worker", "index": rank - 1} if rank else {"type": "ps", "index": 0},
            "environment": "cloud",
        }
    assert order_of(plan) == ("any", "workers-done")


@of("ray")
def test_rays_workers_join_the_head(case: str, size: int) -> None:
    plan = plan_of(case, size)
    for rank, node in enumerate(plan.nodes):
        assert node.environment["RAY_ADDRESS"] == f"{HEAD}:6379"
        assert word_after(node.script, "--node-ip-address") == node.private_ip
        assert f'{{"Rank:{rank}": 1, ' in node.script
        assert ("--head" in node.script.split()) == (rank == 0)
        if rank:
            assert word_after(node.script, "--address") == f"{HEAD}:6379"
    assert word_after(plan.nodes[0].script, "--port") == "6379"
    assert order_of(plan) == ("any" if size == 1 else "master-first", "master-done")
    assert (plan.ready and plan.ready.port) == (None if size == 1 else 6379)
