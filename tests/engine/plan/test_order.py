"""The order of ranks: neighbours together, the head first."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.plan.node_choice import order_nodes
from nodes.inventory import Node


def node(rank: int, *topology: str) -> Node:
    return Node(
        rank=rank, name=f"node{rank}", instance_id=f"i-{rank}", private_ip=f"10.0.0.{rank + 4}",
        gpus=8, slots=8, topology=topology,
    )  # fmt: skip


def ranks(nodes: tuple[Node, ...]) -> list[int]:
    return [node.rank for node in nodes]


def test_nodes_below_one_leaf_are_together_the_heads_first() -> None:
    leaves = ["b", "a", "b", "a", "c", "b"]
    nodes = [node(rank, "top", "middle", leaf) for rank, leaf in enumerate(leaves)]
    assert ranks(order_nodes(nodes, "topology")) == [0, 2, 5, 1, 3, 4]
    assert ranks(order_nodes(nodes, "launch")) == [0, 1, 2, 3, 4, 5]


def test_upper_layers_count_before_lower_ones() -> None:
    nodes = [
        node(0, "top", "m1", "a"),
        node(1, "top", "m2", "x"),
        node(2, "top", "m1", "b"),
        node(3, "top", "m2", "y"),
        node(4, "top", "m1", "a"),
        node(5, "top", "m2", "x"),
    ]
    assert ranks(order_nodes(nodes, "topology")) == [0, 4, 2, 1, 5, 3]


def test_the_uppermost_layer_counts_too() -> None:
    nodes = [node(rank, top, str(rank)) for rank, top in enumerate(["t", "u", "t", "u"])]
    assert ranks(order_nodes(nodes, "topology")) == [0, 2, 1, 3]


def test_nodes_that_nobody_can_place_are_last_but_the_head() -> None:
    nodes = [node(0), node(1, "top", "a"), node(2), node(3, "top", "b"), node(4, "top", "a")]
    assert ranks(order_nodes(nodes, "topology")) == [0, 1, 4, 3, 2]


def test_without_topology_the_order_is_that_of_launch() -> None:
    assert ranks(order_nodes([node(rank) for rank in range(4)], "topology")) == [0, 1, 2, 3]


places = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3).map(tuple)


@given(st.lists(places, min_size=1, max_size=12))
def test_every_node_is_there_once_and_groups_are_whole(topologies: list[tuple[str, ...]]) -> None:
    nodes = [node(rank, *place) for rank, place in enumerate(topologies)]
    order = order_nodes(nodes, "topology")
    assert sorted(ranks(order)) == list(range(len(nodes)))
    assert order[0] == nodes[0]
    assert order_nodes(order, "topology") == order
    if all(len(place) == 3 for place in topologies):
        for depth in (1, 2, 3):
            places = [node.topology[:depth] for node in order]
            changes = sum(one != other for one, other in pairwise(places))
            assert changes == len(set(places)) - 1
