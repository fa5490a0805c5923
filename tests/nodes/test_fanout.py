"""One action on many nodes, many answers told as few."""

import asyncio

import pytest

from config.errors import GpuctlError, NodeError
from nodes.fanout import Group, fold_answers, on_each
from nodes.inventory import Node

NODES = tuple(
    Node(rank=i, name=f"node{i}", instance_id=f"i-{i}", private_ip=f"10.0.0.{i}", gpus=8, slots=8)
    for i in range(6)
)


def test_a_failing_node_stops_no_other_and_ranks_are_in_order() -> None:
    async def action(node: Node) -> str:
        await asyncio.sleep((6 - node.rank) / 1000)
        if node.rank == 2:
            raise NodeError("node2 (10.0.0.2) is gone", "")
        return node.name

    answers = asyncio.run(on_each(NODES, action))
    assert list(answers) == [0, 1, 2, 3, 4, 5]
    assert isinstance(answers[2], NodeError)
    assert [a for a in answers.values() if not isinstance(a, GpuctlError)] == [
        "node0",
        "node1",
        "node3",
        "node4",
        "node5",
    ]


def test_no_more_than_the_limit_run_at_once() -> None:
    running = most = 0

    async def action(_: Node) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    asyncio.run(on_each(NODES, action, limit=2))
    assert most == 2


def test_a_mistake_of_ours_is_not_hidden_as_an_answer() -> None:
    async def action(_: Node) -> None:
        raise KeyError("ours")

    with pytest.raises(ExceptionGroup):
        asyncio.run(on_each(NODES[:1], action))


def test_equal_answers_become_one_group() -> None:
    answers = {0: "a", 1: "b", 2: "a", 3: "a", 5: "b"}
    assert fold_answers(NODES, answers) == (
        Group("node[0,2-3]", (0, 2, 3), "a"),
        Group("node[1,5]", (1, 5), "b"),
    )
