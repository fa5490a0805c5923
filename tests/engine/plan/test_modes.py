"""What each mode launches: golden plans, the same by the command, and what holds for all."""

import json
import subprocess
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.run.owned_variables import owner
from config.run.run_file import RUN_TYPES, Run
from engine.contract.codec import from_json, to_json
from engine.contract.node_plan import ReadyPlan
from engine.contract.plan import LaunchPlan, RunOrder
from engine.plan.launch_plan import launch_plan
from engine.plan.modes import MODES
from engine.plan.modes.job import node_range, roles_of
from engine.plan.network.presets import PRESETS
from nodes.inventory import Inventory
from tests import golden
from tests.engine.conftest import make_inventory
from tests.engine.golden import (
    CASES,
    folded,
    inventory_path,
    plan_of,
    plan_path,
    run_text,
    text_of,
)


def run_of(**fields: Any) -> Run:
    kind = fields.get("type", "mpi")
    bare = {"type": kind, "name": "job", "nodes": 2}
    commands = {} if kind == "nccl-tests" else {"commands": ("./train",)}
    return RUN_TYPES[kind].model_validate({**bare, **commands, **fields})


def planned(count: int | None = None, gpus: int = 8, **fields: Any) -> LaunchPlan:
    run = run_of(**fields)
    return launch_plan(run, make_inventory(count or node_range(run)[1], gpus), "job-000001")


def test_every_type_has_its_launch() -> None:
    assert list(MODES) == list(RUN_TYPES)


@pytest.mark.parametrize("name", RUN_TYPES)
def test_the_owned_variables_say_whether_a_type_counts(name: str) -> None:
    assert (owner(name, "RANK") is not None) == bool(RUN_TYPES[name].COUNTED)


def test_every_type_has_golden_plans() -> None:
    assert {plan_of(case, size).type for case, size in CASES} == set(RUN_TYPES)


@pytest.mark.parametrize(("case", "size"), CASES)
def test_golden(case: str, size: int) -> None:
    plan = plan_of(case, size)
    written = json.dumps(to_json(plan))
    golden.check(plan_path(case, size), text_of(json.loads(written)))
    assert from_json(LaunchPlan, json.loads(written)) == plan


@pytest.mark.parametrize(("case", "size"), CASES)
def test_an_order_that_is_sent_without_common_texts_is_whole_on_the_head(
    case: str, size: int
) -> None:
    order = RunOrder(plan_of(case, size), {})
    sent = json.dumps(to_json(order.without_common_texts()))
    assert from_json(RunOrder, json.loads(sent)).with_common_texts() == order


def test_the_size_of_an_order_grows_with_its_nodes_and_not_with_their_square() -> None:
    orders = [RunOrder(planned(nodes, commands=("x",)), {}) for nodes in (16, 32, 64)]
    sizes = [len(json.dumps(to_json(order.without_common_texts()))) for order in orders]
    assert sizes[2] - sizes[1] == pytest.approx(2 * (sizes[1] - sizes[0]), rel=0.1)


@pytest.mark.parametrize(("case", "size"), CASES)
def test_dry_run_prints_what_is_executed(case: str, size: int, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(run_text(case, size))
    options = ["--dry-run", "--json", "--inventory", str(inventory_path(size))]
    answer = CliRunner().invoke(app, ["run", str(file), *options])
    assert answer.exit_code == 0, answer.output
    run_id = json.loads(answer.stdout)["run_id"]
    plan = json.loads(answer.stdout.replace(run_id, f"{run_id[:-7]}-000000"))
    assert folded(plan) == json.loads(plan_path(case, size).read_text())


@pytest.mark.parametrize(("case", "size"), CASES)
def test_every_variable_of_the_engine_is_in_the_table_of_owned_names(case: str, size: int) -> None:
    plan = plan_of(case, size)
    settings = {setting.name for setting in PRESETS[plan.network.preset].settings}
    run_file = run_text(case, size)
    for node in plan.nodes:
        for name in node.environment.keys() - settings - {"OMPI_MCA_btl_tcp_if_exclude"}:
            assert owner(plan.type, name) or f"{name}:" in run_file or f"{name}=" in run_file


@pytest.mark.parametrize(("case", "size"), CASES)
def test_scripts_are_bash(case: str, size: int) -> None:
    for node in plan_of(case, size).nodes[:2]:
        scripts = [node.script, *(t for path, t in node.files.items() if path.endswith(".sh"))]
        for script in scripts:
            done = subprocess.run(
                ["bash", "-n"], input=script, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")


def test_ranks_follow_the_network_from_the_head() -> None:
    nodes = plan_of("task", 16).nodes
    assert [node.rank for node in nodes] == list(range(16))
    assert [node.name for node in nodes] != [f"node{number}" for number in range(16)]
    inventory = Inventory.model_validate_json(inventory_path(16).read_bytes())
    leaf = {node.name: node.topology[-1] for node in inventory.nodes}
    leaves = [name for name, _ in groupby(leaf[node.name] for node in nodes)]
    assert leaves == ["nn-3a", "nn-9e", "nn-7c"]


def test_elastic_run_takes_the_nodes_that_are_there() -> None:
    fields: dict[str, Any] = {"type": "torchrun", "nodes": 1, "nnodes": "2..4", "max_restarts": 1}
    environments = [planned(count, **fields).nodes[0].environment for count in (2, 3, 5)]
    assert [found["PET_NNODES"] for found in environments] == ["2", "2:3", "2:4"]


@pytest.mark.parametrize(
    ("fields", "processes"),
    [
        ({"type": "mpi"}, [8, 8]),
        ({"type": "mpi", "procs_per_node": 2}, [2, 2]),
        ({"type": "mpi", "launcher_as_node": False}, [0, 8]),
        ({"type": "nccl-tests"}, [8, 8]),
        ({"type": "torchrun"}, [8, 8]),
        ({"type": "torchrun", "max_restarts": 1}, [0, 0]),
        ({"type": "horovod"}, [8, 8]),
        ({"type": "deepspeed"}, [8, 8]),
        ({"type": "task"}, [0, 0]),
        ({"type": "ddp"}, [0, 0]),
        ({"type": "ps-worker"}, [0, 0]),
        ({"type": "ray"}, [0, 0]),
    ],
)
def test_ranks_that_are_counted(fields: dict[str, Any], processes: list[int]) -> None:
    assert [node.processes for node in planned(**fields).nodes] == processes


def test_a_node_without_gpus_has_one_rank() -> None:
    plan = planned(gpus=0)
    assert [node.processes for node in plan.nodes] == [1, 1]
    hostfile = plan.nodes[0].files["/var/lib/gpuctl/runs/job-000001/hostfile"]
    assert hostfile == "10.213.1.10 slots=1\n10.213.1.11 slots=1\n"


def test_above_64_nodes_the_head_enters_them_all() -> None:
    for count, expected in ((64, [None] * 4), (65, ["1", "65", "1", "65"])):
        environment = planned(nodes=count).nodes[0].environment
        names = [
            f"{plm}_{name}"
            for plm in ("OMPI_MCA_plm_rsh", "PRTE_MCA_plm_ssh")
            for name in ("no_tree_spawn", "num_concurrent")
        ]
        assert [environment.get(name) for name in names] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "lo,docker0"),
        ({"env": {"OMPI_MCA_btl_tcp_if_exclude": "lo"}}, "lo"),
        ({"env": {"OMPI_MCA_btl_tcp_if_include": "ens32"}}, None),
        ({"mpirun_args": ("--mca", "btl_tcp_if_include", "ens32")}, None),
        ({"implementation": "mpich"}, None),
    ],
)
def test_interfaces_of_open_mpi_are_a_default(fields: dict[str, Any], expected: str | None) -> None:
    environment = planned(**fields).nodes[0].environment
    assert environment.get("OMPI_MCA_btl_tcp_if_exclude") == expected


def test_the_roles_env_is_laid_over_secrets_too() -> None:
    secret = {"secret": "STORED"}
    plan = planned(
        type="task",
        network="tcp",
        env={"A": secret, "B": "plain", "NCCL_DEBUG": "WARN"},
        roles={"worker": {"env": {"A": "plain", "B": secret}}},
    )
    head, worker = plan.nodes
    assert (head.secrets, head.environment["B"]) == ({"A": "STORED"}, "plain")
    assert (worker.secrets, worker.environment["A"]) == ({"B": "STORED"}, "plain")
    assert "A" not in head.environment
    assert "B" not in worker.environment
    assert head.environment["NCCL_DEBUG"] == "WARN"


@pytest.mark.parametrize(
    ("kind", "roles", "expected"),
    [
        ("task", {}, "master worker worker worker"),
        ("mpi", {"launcher": {}, "worker": {}}, "launcher worker worker worker"),
        ("ps-worker", {}, "ps worker worker worker"),
        ("ps-worker", {"worker": {"nodes": 2}, "ps": {"nodes": 2}}, "ps ps worker worker"),
        ("ray", {"big": {"nodes": 1}}, "head big worker worker"),
        ("ray", {"worker": {}, "big": {"nodes": 1}}, "head worker worker big"),
        ("ray", {"big": {"nodes": 2}, "small": {"nodes": 1}}, "head big big small"),
    ],
)
def test_roles(kind: str, roles: dict[str, Any], expected: str) -> None:
    assert roles_of(run_of(type=kind, nodes=4, roles=roles), 4) == tuple(expected.split())


def test_ps_worker_tells_each_task_of_all() -> None:
    plan = planned(type="ps-worker", nodes=3, roles={"ps": {"nodes": 1}})
    configs = [json.loads(node.environment["TF_CONFIG"]) for node in plan.nodes]
    cluster = {
        "ps": ["10.213.1.10:2222"],
        "worker": ["10.213.1.11:2222", "10.213.1.12:2222"],
    }
    assert [config["cluster"] for config in configs] == [cluster] * 3
    assert [config["task"] for config in configs] == [
        {"type": "ps", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        ({}, None),
        ({"timeout": "5s"}, None),
        ({"port": 80}, ReadyPlan(port=80, command=None, timeout_s=300)),
        ({"command": "test -e x"}, ReadyPlan(port=None, command="test -e x", timeout_s=300)),
        ({"port": 80, "command": "true", "timeout": "5s"},
         ReadyPlan(port=80, command="true", timeout_s=5)),
    ],
)  # fmt: skip
def test_a_task_is_ready_by_port_or_command(
    ready: dict[str, Any], expected: ReadyPlan | None
) -> None:
    assert planned(type="task", ready=ready).ready == expected


def test_one_node_waits_for_no_port() -> None:
    for kind in ("ddp", "ray"):
        plan = planned(type=kind, nodes=1)
        assert (plan.startup_order, plan.ready) == ("any", None)


def test_image_and_who_pulls_it() -> None:
    plan = planned(
        image="registry.example/train:1",
        registry_auth={"username": "me", "password": {"secret": "TOKEN"}},
    )
    image = plan.image
    assert image is not None
    assert (image.reference, image.digest) == ("registry.example/train:1", None)
    assert (image.username, image.password_secret) == ("me", "TOKEN")
