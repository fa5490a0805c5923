"""The schemas that editors use accept what gpuctl accepts, and underline what it refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from jsonschema import Draft202012Validator

from config.loading.kinds import kind_of
from config.loading.load import check, load_cluster, load_run
from config.run.run_file import RUN_TYPES, Task
from config.schema import json_schema
from formats.dstack.dstack_keys import TABLE
from tests.config.test_complaints import CLUSTER, RUN

ROOT = Path(__file__).parents[2]
STACKS = sorted((ROOT / "stacks").glob("*.yaml"))


def is_valid(kind: Literal["cluster", "run"], text: str) -> bool:
    return bool(Draft202012Validator(json_schema(kind)).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("stack", STACKS, ids=lambda path: path.name)
def test_every_stack_is_valid_for_gpuctl_and_for_editors(stack: Path) -> None:
    assert [d for d in check(stack) if d.severity == "error"] == []
    kind = kind_of(yaml.safe_load(stack.read_text()))
    assert kind in ("cluster", "run")
    (load_cluster if kind == "cluster" else load_run)(stack)
    assert is_valid(kind, stack.read_text())


def test_editors_know_files_with_hosts() -> None:
    assert is_valid("cluster", "{name: lab7, hosts: [{address: gpu1}], user: ubuntu}")
    assert not is_valid("cluster", "{name: lab7, hosts: [{address: gpu1}], nodes: 2}")
    assert not is_valid("cluster", "{name: lab7, hosts: [{user: ubuntu}]}")


def test_editors_know_the_keys_of_dstacks_tasks() -> None:
    assert is_valid("run", f"{RUN}resources: {{gpu: 8}}\nretry: true\n")
    assert not is_valid("run", f"{RUN}colour: red\n")


def test_the_seed_is_kept_unmodified() -> None:
    run = load_run(ROOT / "stacks" / "nccl-tests.dstack.yaml")
    assert isinstance(run, Task)
    assert (run.nodes, run.startup_order, run.stop_criteria) == (2, "workers-first", "master-done")
    assert run.env == {"NCCL_DEBUG": "INFO"}
    assert len(run.commands) == 1
    assert run.commands[0].startswith("if [ ${DSTACK_NODE_RANK} -eq 0 ]; then\n  cd /root/nccl-")
    assert run.commands[0].endswith("else\n  sleep infinity\nfi\n")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "lifetime: {max: 8h}",
            "budget: {max_hourly: 12.5}",
            "tags: {team: x}",
            "network: {efa: required}",
            "region: us-east-1",
        ),
        *("capacity: {type: spot, zones: [us-east-1a], wait: 30m}", "image: ami-0123456789abcdef0"),
    ],
)
def test_good_cluster_lines(line: str) -> None:
    assert is_valid("cluster", f"{CLUSTER}{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        *("node: 2", "storage: {colour: red}", "lifetime: {max: 8}", "lifetime: {max: 8 h}"),
        *("lifetime: {}", "network: {efa: maybe}", "image: debian", "storage: {root: {gib: 1}}"),
    ],
)
def test_bad_cluster_lines(line: str) -> None:
    assert not is_valid("cluster", f"{CLUSTER}{line}\n")


def test_unknown_instance_types_are_underlined() -> None:
    assert not is_valid("cluster", CLUSTER.replace("p4d.24xlarge", "p4d.24xlage"))
    assert is_valid("cluster", CLUSTER.replace("p4d.24xlarge", "c6i.large"))


@pytest.mark.parametrize(
    "line", ["env: [A=1, B=]", "env: {A: x, B: 5}", "max_duration: 90m", "ready: {timeout: 5s}"]
)
def test_good_run_lines(line: str) -> None:
    assert is_valid("run", f"{RUN}{line}\n")


@pytest.mark.parametrize(
    "line", ["env: [A-]", "env: {1A: x}", "env: {A: true}", "max_duration: 90", "type: service"]
)
def test_bad_run_lines(line: str) -> None:
    text = RUN.replace("type: task\n", "") if line.startswith("type") else RUN
    assert not is_valid("run", f"{text}{line}\n")


@pytest.mark.parametrize(
    "text",
    [
        "type: mpi\nname: x\nnodes: 2\ncommands: [x]\nroles: {worker: {env: {A: {secret: B}}}}",
        "type: nccl-tests\nname: x\ncollectives: [all_reduce]\nmin_bytes: 8\nmax_bytes: 1G",
        "type: torchrun\nname: x\ncommands: [x]\nnnodes: 2..4",
        "extends: hello",
        "extends: hello\ntype: mpi\nprocs_per_node: 2",
        "extends: hello\nprocs_per_node: 2",
    ],
)
def test_good_runs(text: str) -> None:
    assert is_valid("run", text)


@pytest.mark.parametrize(
    "text",
    [
        "type: mpi\nname: x",
        "name: x\ncommands: [x]",
        "type: mpi\nname: x\ncommands: [x]\nmax_restarts: 2",
        "type: torchrun\nname: x\ncommands: [x]\nnnodes: 2-4",
        "type: nccl-tests\nname: x\nmin_bytes: 0",
        "type: task\nname: x\ncommands: [x]\nenv: {A: {sekret: B}}",
        "extends: hello\nproc_per_node: 2",
    ],
)
def test_bad_runs(text: str) -> None:
    assert not is_valid("run", text)


def test_the_run_schema_has_a_branch_for_every_type() -> None:
    schema = json_schema("run")
    assert schema["properties"]["type"]["enum"] == list(RUN_TYPES)
    for model in RUN_TYPES.values():
        of_dstack = set(TABLE) if model is Task else set()
        keys = set(model.model_fields) | of_dstack
        assert set(schema["$defs"][model.__name__]["properties"]) == keys


def test_every_key_of_every_mapping_is_described() -> None:
    def undescribed(schema: dict[str, Any]) -> Iterator[str]:
        parts = (schema.get(name, {}) for name in ("then", "else"))
        for mapping in (schema, *parts, *schema["$defs"].values()):
            for key, field in mapping.get("properties", {}).items():
                reference = field.get("$ref", "").rpartition("/")[2]
                if not (field.get("description") or schema["$defs"][reference].get("description")):
                    yield key

    assert [*undescribed(json_schema("cluster")), *undescribed(json_schema("run"))] == []
