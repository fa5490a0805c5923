"""Runs with a range of nodes: the plan on the nodes that are left is that of a run on those."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InputError
from config.run.run_file import RUN_TYPES, Run
from engine.agent.head.run_state import plan_on, replace_addresses
from engine.contract.codec import from_json, to_json
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import launch_plan
from nodes.inventory import Inventory
from tests.engine.conftest import make_inventory

RANGE = {"min": 1, "max": 5}
RETRY = {"attempts": 3}
TYPES: dict[str, dict[str, Any]] = {
    "task": {"startup_order": "workers-first", "roles": {"master": {"env": {"A": "head"}}}},
    "mpi": {"procs_per_node": 4},
    "ddp": {},
    "torchrun": {"env": {"TOKEN": {"secret": "T"}}},
    "horovod": {},
    "deepspeed": {},
    "ray": {},
}


def run_of(kind: str, **fields: Any) -> Run:
    values = {"type": kind, "name": "job", "commands": ("train node1",)}
    return RUN_TYPES[kind].model_validate({**values, **TYPES[kind], **fields})


def planned(run: Run, inventory: Inventory) -> LaunchPlan:
    """The plan as the head has it."""
    data = json.dumps(to_json(launch_plan(run, inventory, "job-000001")))
    return from_json(LaunchPlan, json.loads(data))


@given(st.sampled_from(sorted(TYPES)), st.sets(st.integers(0, 4), min_size=1), st.booleans())
def test_the_plan_on_the_nodes_that_are_left_is_that_of_a_run_on_them(
    kind: str, ranks: set[int], is_healed: bool
) -> None:
    there = make_inventory(5)
    whole = planned(run_of(kind, nodes=RANGE, retry=RETRY), there)
    left = [there.nodes[rank] for rank in sorted(ranks)]
    if is_healed:
        moved = left[-1].model_copy(update={"private_ip": "10.213.1.99"})
        whole = replace_addresses(whole, {moved.name: moved.private_ip})
        left[-1] = moved
    found = plan_on(whole, {node.name for node in left})
    fixed = run_of(kind, nodes=len(left), retry=RETRY)
    expected = planned(fixed, there.model_copy(update={"nodes": tuple(left)}))
    assert found.nodes == expected.nodes
    for key in ("network", "startup_order", "stop_criteria", "ready"):
        assert getattr(found, key) == getattr(expected, key), key


def test_a_run_starts_on_all_nodes_of_its_range_that_there_are() -> None:
    run = run_of("task", nodes={"min": 2, "max": 4}, retry=RETRY)
    for count, used in ((2, 2), (3, 3), (9, 4)):
        plan = planned(run, make_inventory(count))
        assert len(plan.nodes) == used
        assert [len(size.nodes) for size in plan.sizes] == list(range(2, used))
    with pytest.raises(InputError) as caught:
        planned(run, make_inventory(1))
    assert str(caught.value) == (
        "run job wants 2 to 4 nodes, cluster demo has 1;"
        " set the `min` of `nodes` to 1, or bring up a larger cluster"
    )


def test_without_retry_no_size_is_planned() -> None:
    assert not planned(run_of("task", nodes=RANGE), make_inventory(5)).is_elastic


def test_nodes_of_a_range_are_alike() -> None:
    there = make_inventory(3)
    broken = there.nodes[2].model_copy(update={"gpus": 7, "slots": 7})
    there = there.model_copy(update={"nodes": (*there.nodes[:2], broken)})
    with pytest.raises(InputError) as caught:
        planned(run_of("task", nodes={"min": 2, "max": 3}, retry=RETRY), there)
    assert str(caught.value) == (
        "`nodes` of run job is a range, and its nodes are not alike: node0 has 8 GPUs, node2 has 7;"
        " write one number of nodes, or replace the node that differs"
    )
