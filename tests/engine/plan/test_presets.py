"""Network presets: which one a run gets, what it sets, promises and warns of."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from config.generated_page import DOCS
from config.run.run_file import RUN_TYPES, Mpi, NetworkName, PresetName, Run, Task
from engine.agent.judge.rdma_check import _NETWORKS, _TITLES
from engine.contract.plan import NetworkPlan, Promise
from engine.plan.network.presets import (
    PRESETS,
    choose_preset,
    misfit_reason,
    network_plan,
    unprovable_reason,
    warnings,
)
from engine.plan.network.settings import UserSetting, user_settings
from nodes.inventory import OWN_MACHINES, Inventory, Node

SOFTWARE = {"openmpi": "4.1.7"}


def node(rank: int = 0, gpus: int = 8, **found: object) -> Node:
    facts = {"software": SOFTWARE, "interface": "ens32", **found}
    return Node.model_validate(
        {
            "rank": rank,
            "name": f"node{rank}",
            "instance_id": f"i-{rank}",
            "private_ip": f"10.0.0.{rank + 4}",
            "gpus": gpus,
            "slots": gpus or 1,
            **facts,
        }
    )


def pair(**found: object) -> tuple[Node, Node]:
    return node(0, **found), node(1, **found)  # type: ignore[arg-type]


def inventory(nodes: tuple[Node, ...], instance_type: str = "p4d.24xlarge") -> Inventory:
    return Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type=instance_type,
        bastion=None,
        nodes=nodes,
        folder=Path("/nowhere"),
    )


def a_run(network: NetworkName = "auto", **more: object) -> Run:
    return Task.model_validate(
        {"type": "task", "name": "job", "commands": ("true",), "network": network, **more}
    )


EFA = pair(efa=4)
IB = pair(hcas=("mlx5_0:InfiniBand", "mlx5_1:InfiniBand", "mlx5_2:Ethernet"))
ROCE = pair(hcas=("mlx5_0:Ethernet", "mlx5_1:Ethernet"))
BONDS = pair(hcas=tuple(f"mlx5_bond_{n}:Ethernet" for n in range(8)))


@pytest.mark.parametrize(
    ("nodes", "preset"),
    [
        (EFA, "efa"),
        (IB, "infiniband"),
        (ROCE, "roce"),
        (BONDS, "hcc"),
        (BONDS[:1], "roce"),
        (pair(), "tcp"),
        (pair(software={}), "none"),
        ((node(0, efa=4), node(1)), "tcp"),
    ],
)
def test_auto_goes_by_the_hardware_of_all_nodes(nodes: tuple[Node, ...], preset: str) -> None:
    assert choose_preset(a_run(), nodes).name == preset


@pytest.mark.parametrize(
    ("nodes", "preset"), [(EFA, "efa"), (IB, "infiniband"), (ROCE, "roce"), (BONDS, "hcc")]
)
def test_rdma_goes_by_the_hardware_too(nodes: tuple[Node, ...], preset: str) -> None:
    assert choose_preset(a_run("rdma"), nodes).name == preset


def test_own_machines_use_exactly_the_interface_of_their_internal_addresses() -> None:
    def sockets(nodes: tuple[Node, ...], instance_type: str) -> str:
        preset = choose_preset(a_run(), nodes)
        return preset.environment(a_run(), nodes, instance_type)["NCCL_SOCKET_IFNAME"]

    assert sockets(IB, OWN_MACHINES) == "=ens32"
    assert sockets(pair(), OWN_MACHINES) == "=ens32"
    assert sockets((node(0), node(1, interface="eth1")), OWN_MACHINES) == "^docker,lo,veth"
    assert sockets(pair(), "p4d.24xlarge") == "^docker,lo,veth"


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_that_is_named_is_taken(preset: PresetName) -> None:
    assert choose_preset(a_run(preset), EFA).name == preset


@pytest.mark.parametrize(
    ("preset", "nodes", "reason"),
    [
        ("efa", EFA, None),
        ("efa", (node(0, efa=4), node(1)), "node1 has no EFA interface"),
        ("efa", pair(software={}), None),
        ("infiniband", IB, None),
        ("infiniband", EFA, "node0 has no InfiniBand device"),
        ("roce", IB, None),
        ("roce", pair(hcas=("mlx5_0:InfiniBand",)), "node0 has no RoCE device"),
        ("hcc", BONDS, None),
        ("hcc", BONDS[:1], "it is for 2 nodes or more, the run has 1"),
        ("hcc", (node(0), node(1, gpus=4)), "it is for nodes with 8 GPUs, node1 has 4"),
        ("hcc", EFA, "node0 has no device mlx5_bond_*"),
        ("tcp", EFA, None),
        ("none", EFA, None),
    ],
)
def test_a_preset_fits_its_hardware(
    preset: PresetName, nodes: tuple[Node, ...], reason: str | None
) -> None:
    assert misfit_reason(PRESETS[preset], nodes) == reason


def test_the_environment_of_efa() -> None:
    environment = {
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "^docker,lo,veth",
        "GLOO_SOCKET_IFNAME": "ens32",
        "FI_EFA_USE_HUGE_PAGE": "0",
    }
    efa = PRESETS["efa"]
    assert efa.environment(a_run(), EFA, "p5.48xlarge") == environment
    copied = {"NCCL_SHM_USE_CUDA_MEMCPY": "1"}
    assert efa.environment(a_run(), EFA, "g5.48xlarge") == environment | copied
    assert efa.environment(a_run(), EFA, "g6e.48xlarge") == environment
    nvlink = {"NCCL_MNNVL_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"}
    assert efa.environment(a_run(), EFA, "p6e-gb200.36xlarge") == environment | nvlink


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        ("nccl-tests", {}, False),
        ("mpi", {"commands": ("./train",)}, False),
        ("mpi", {"commands": ("./prepare", "python3 train.py  # loads data")}, True),
        (
            "mpi",
            {"commands": ("./train",), "roles": {"worker": {"commands": ("ray start",)}}},
            True,
        ),
        ("task", {"commands": ("./train",)}, True),
        ("ddp", {"commands": ("./train",)}, True),
    ],
)
def test_efa_goes_without_huge_pages_where_a_job_forks(
    type_: str, fields: dict[str, Any], expected: bool
) -> None:
    run = RUN_TYPES[type_].model_validate({"type": type_, "name": "a", "nodes": 2, **fields})
    environment = PRESETS["efa"].environment(run, EFA, "p5.48xlarge")
    assert environment.get("FI_EFA_USE_HUGE_PAGE") == ("0" if expected else None)


def test_names_that_nodes_do_not_share_are_left_out() -> None:
    nodes = (node(0, interface="ens32"), node(1, interface="enp71s0"))
    assert "GLOO_SOCKET_IFNAME" not in PRESETS["efa"].environment(a_run(), nodes, "p5.48xlarge")
    unknown = pair(interface="")
    assert "GLOO_SOCKET_IFNAME" not in PRESETS["tcp"].environment(a_run(), unknown, "p5.48xlarge")


def test_devices_of_the_other_link_layer_stay_out() -> None:
    assert PRESETS["infiniband"].environment(a_run(), IB, "")["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert PRESETS["roce"].environment(a_run(), IB, "")["NCCL_IB_HCA"] == "=mlx5_2"


def test_tcp_forces_sockets_and_none_sets_nothing() -> None:
    assert PRESETS["tcp"].environment(a_run(), EFA, "p4d.24xlarge") == {
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "^docker,lo,veth",
        "GLOO_SOCKET_IFNAME": "ens32",
    }
    assert PRESETS["none"].environment(a_run(), EFA, "p4d.24xlarge") == {}


def test_hcc_has_ti_ones_values_exactly() -> None:
    text = (
        "NCCL_IB_GID_INDEX=3 NCCL_IB_SL=3 NCCL_CHECK_DISABLE=1 NCCL_P2P_DISABLE=0 NCCL_IB_DISABLE=0"
        " NCCL_LL_THRESHOLD=16384 NCCL_IB_CUDA_SUPPORT=1 NCCL_IB_HCA=mlx5_bond NCCL_NET_GDR_LEVEL=2"
        " NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_TC=160 NCCL_PXN_DISABLE=1 NCCL_IB_TIMEOUT=24"
        " NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TCCL_TOPO_AFFINITY=4"
    )
    environment = PRESETS["hcc"].environment(a_run(), BONDS, "")
    assert " ".join(f"{name}={value}" for name, value in environment.items()) == text


def test_what_is_promised() -> None:
    def promised(run: Run, nodes: tuple[Node, ...], kind: str = "p4d.24xlarge") -> NetworkPlan:
        return network_plan(run, choose_preset(run, nodes), inventory(nodes, kind), nodes)

    assert promised(a_run(), EFA) == NetworkPlan(
        preset="efa", promises="efa", interfaces=4, gpudirect=True, verify="auto"
    )
    assert not promised(a_run(), EFA, "g5.48xlarge").gpudirect
    assert promised(a_run(verify="warn"), IB) == NetworkPlan(
        preset="infiniband", promises="infiniband", gpudirect=True, verify="warn"
    )
    assert promised(a_run(), BONDS).promises == "roce"
    assert promised(a_run(), EFA[:1]) == NetworkPlan(preset="efa")
    assert promised(a_run("tcp"), EFA) == NetworkPlan(preset="tcp")


def test_what_cannot_be_proven_is_not_required() -> None:
    def reason(network: NetworkName, nodes: tuple[Node, ...]) -> str | None:
        run = a_run(network, verify="require")
        return unprovable_reason(run, choose_preset(run, nodes), nodes)

    assert reason("auto", EFA) is None
    assert reason("tcp", EFA) == "its network preset tcp promises no RDMA"
    assert reason("auto", EFA[:1]) == "it has 1 node, which uses no network"
    assert unprovable_reason(a_run("tcp"), PRESETS["tcp"], EFA) is None


def of_env(environment: dict[str, str]) -> list[UserSetting]:
    return [UserSetting(name, value, "env") for name, value in environment.items()]


IFNAME = "names an interface that EC2's instances do not have; leave it out: the preset sets it"
NO_EFA = "keeps libfabric from its provider for EFA; leave it out, or set `network: tcp`"
HIDES = "suppresses the lines that prove RDMA; leave it out, or set `verify: off`"


@pytest.mark.parametrize(
    ("commands", "warned"),
    [
        ("mpirun -x NCCL_SOCKET_IFNAME=eth0 ./a", f"NCCL_SOCKET_IFNAME {IFNAME}"),
        ("mpirun \\\n  -x NCCL_DEBUG=WARN \\\n  ./a", f"NCCL_DEBUG {HIDES}"),
        ("set -e\nexport NCCL_DEBUG=version\npython x.py", f"NCCL_DEBUG {HIDES}"),
        ("env 'NCCL_DEBUG=WARN' python x.py", f"NCCL_DEBUG {HIDES}"),
        ('export GLOO_SOCKET_IFNAME="ib0"', f"GLOO_SOCKET_IFNAME {IFNAME}"),
        ("mpiexec -genv NCCL_DEBUG WARN ./a", f"NCCL_DEBUG {HIDES}"),
        ("mpirun --mca btl_tcp_if_include eth0 ./a", f"OMPI_MCA_btl_tcp_if_include {IFNAME}"),
        ("mpiexec -iface eth0 ./a", f"HYDRA_IFACE {IFNAME.partition(':')[0]}"),
        ("horovodrun --network-interfaces eth0,eth1 python x.py", f"NCCL_SOCKET_IFNAME {IFNAME}"),
        (
            "srun --export=ALL,NCCL_DEBUG=INFO,NCCL_SOCKET_IFNAME=ib0 ./a",
            f"NCCL_SOCKET_IFNAME {IFNAME}",
        ),
        (
            """ray job submit --runtime-env-json='{"env_vars": {"NCCL_DEBUG": "WARN"}}' -- ./a""",
            f"NCCL_DEBUG {HIDES}",
        ),
        ("mpirun -x FI_PROVIDER=tcp ./a", f"FI_PROVIDER {NO_EFA}"),
        ("export FI_PROVIDER='tcp;ofi_rxm,shm'", f"FI_PROVIDER {NO_EFA}"),
        ("export FI_PROVIDER=^efa", f"FI_PROVIDER {NO_EFA}"),
        (
            'python -c \'import os; os.environ["NCCL_DEBUG"] = "WARN"\'',
            f"NCCL_DEBUG {HIDES}",
        ),
        (
            "export NCCL_IB_HCA=mlx5_0",
            "NCCL_IB_HCA chooses among InfiniBand's and RoCE's devices, which EC2's instances do"
            " not have; leave it out",
        ),
    ],
)
def test_what_commands_set_is_warned_of_too(commands: str, warned: str) -> None:
    run = Task(type="task", name="job", commands=(commands,))
    assert warnings(PRESETS["efa"], user_settings(run, {})) == (f"commands: {warned}",)


@pytest.mark.parametrize(
    "commands",
    [
        "mpirun -x NCCL_DEBUG -x NCCL_SOCKET_IFNAME=^docker0,lo ./a",
        "# export NCCL_DEBUG=WARN\npython x.py  # NCCL_DEBUG=WARN hides it",
        "export NCCL_DEBUG=${NCCL_DEBUG:-WARN}",
        "if [ $NCCL_DEBUG = WARN ]; then echo; fi",
        "if [[ $NCCL_DEBUG == WARN ]]; then echo; fi",
        "export NCCL_DEBUG=info NCCL_DEBUG_SUBSYS=INIT,NET,ENV",
        "export FI_PROVIDER=efa,shm",
        "export FI_PROVIDER='^tcp,sockets'",
        "python x.py --nccl-debug=WARN",
    ],
)
def test_what_commands_do_not_set_is_not_warned_of(commands: str) -> None:
    run = Task(type="task", name="job", commands=(commands,))
    assert warnings(PRESETS["efa"], user_settings(run, {})) == ()


def test_what_mpirun_gets_is_warned_of_too() -> None:
    run = Mpi(type="mpi", name="job", commands=("./a",), mpirun_args=("-x", "NCCL_DEBUG=WARN"))
    assert warnings(PRESETS["efa"], user_settings(run, {})) == (f"mpirun_args: NCCL_DEBUG {HIDES}",)


@pytest.mark.parametrize(
    ("value", "is_wrong"),
    [
        *(("eth0", True), ("ens5", False), ("ens", False), ("=ens", True), ("=ens5", False)),
        *(("^docker,lo", False), ("^ens", True), ("eth0,ens5", False), ("enp", True)),
    ],
)
def test_interfaces_are_compared_with_those_of_the_nodes(value: str, is_wrong: bool) -> None:
    nodes = [EFA[0].model_copy(update={"interface": "ens5"})]
    settings = of_env({"NCCL_SOCKET_IFNAME": value})
    assert bool(warnings(PRESETS["efa"], settings, nodes)) == is_wrong


def test_the_users_variables_are_warned_of_where_they_do_harm() -> None:
    def warned(preset: PresetName, **environment: str) -> tuple[str, ...]:
        return warnings(PRESETS[preset], of_env(environment))

    assert warned("efa", FI_EFA_USE_DEVICE_RDMA="1", OTHER="1") == (
        "env FI_EFA_USE_DEVICE_RDMA is obsolete since aws-ofi-nccl 1.7 and libfabric 1.18;"
        " leave it out",
    )
    assert warned("tcp", FI_EFA_USE_DEVICE_RDMA="1") == ()
    assert warned("efa", NCCL_DEBUG="INFO") == ()
    assert warned("efa", NCCL_DEBUG="WARN") == (
        "env NCCL_DEBUG suppresses the lines that prove RDMA; leave it out, or set `verify: off`",
    )
    assert warned("efa", NCCL_SOCKET_IFNAME="eth0") == (
        "env NCCL_SOCKET_IFNAME names an interface that EC2's instances do not have; leave it out:"
        " the preset sets it",
    )
    assert warned("infiniband", NCCL_IB_DISABLE="1") == (
        "env NCCL_IB_DISABLE makes NCCL fall back to sockets; leave it out, or set `network: tcp`",
    )
    assert warned("infiniband", NCCL_IB_DISABLE="0") == ()


def test_no_preset_sets_what_is_warned_of() -> None:
    for preset in PRESETS.values():
        if preset.name != "hcc":  # TI-ONE's own values, as they are
            environment = {one.name: one.value for one in preset.settings}
            assert warnings(preset, of_env(environment)) == ()


def test_every_setting_and_warning_says_why_and_from_where() -> None:
    for preset in PRESETS.values():
        names = [one.name for one in preset.settings]
        assert len(set(names)) == len(names)
        assert all(one.reason and one.versions and one.source for one in preset.settings)
        assert all(one.why and one.instead and one.source for one in preset.unwise)


def test_every_name_of_a_run_file_has_one_record_and_its_place_in_the_documentation() -> None:
    assert set(PRESETS) == set(get_args(PresetName))
    page = (DOCS / "understand/rdma.md").read_text()
    table = page.partition("| chosen by")[2].partition("## Proof")[0]
    rows = re.findall(r"^\| `(\w+)` \| ", table, re.MULTILINE)
    assert rows == list(PRESETS)  # the order in which `auto` tries them
    page = (DOCS / "look-up/network.md").read_text()
    titles = re.findall(r"^## `network: (\w+)`: (.+)$", page, re.MULTILINE)
    assert titles == [(p.name, p.title) for p in PRESETS.values() if p.settings]


def test_every_transport_has_the_lines_that_prove_it() -> None:
    promised = {preset.promises for preset in PRESETS.values()} - {""}
    assert promised == set(get_args(Promise)) - {""} == set(_NETWORKS) == set(_TITLES)


def test_an_mpi_run_gets_the_same_presets() -> None:
    run = Mpi.model_validate({"type": "mpi", "name": "job", "commands": ("true",)})
    assert choose_preset(run, EFA).name == "efa"
