"""Where instances stand in the network, asked of EC2; nothing of it is needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.progress import Progress, silent
from config.target import Target
from lab import fault_table
from nodes.inventory import Node
from provision.aws.clients import client
from provision.aws.instances import add_topology
from tests.infra.region import CREDENTIALS, Worlds
from tests.lab.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def region(tmp_path: Path, worlds: Worlds) -> Iterator[tuple[World, Target]]:
    with worlds.api(tmp_path) as (url, _):
        yield World(url), Target("test", "us-east-1", tmp_path, url, environment=CREDENTIALS)


def launched(region: World, count: int, **more: Any) -> list[Node]:
    nodes = []
    for rank in range(count):
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": f"d-node{rank}"}]}]
        (made,) = region.run(TagSpecifications=tags, **more)
        nodes.append(
            Node(
                rank=rank, name=f"node{rank}", instance_id=made, private_ip="10.0.0.4",
                gpus=8, slots=8,
            )
        )  # fmt: skip
    return nodes


def test_nodes_get_the_network_nodes_above_them(region: tuple[World, Target]) -> None:
    world, target = region
    nodes = launched(world, 3)
    told: list[Progress] = []
    found = add_topology(client(target, "ec2"), "demo", nodes, told.append)
    assert [node.rank for node in found] == [0, 1, 2]
    assert found[0].topology == found[2].topology != found[1].topology
    assert {len(node.topology) for node in found} == {3}
    assert told[-1] == Progress("topology", "demo", "done", "below 2 network nodes")


def test_a_type_of_which_ec2_tells_none(region: tuple[World, Target]) -> None:
    world, target = region
    nodes = launched(world, 2, InstanceType="g5.xlarge", SubnetId=world.subnet)
    told: list[Progress] = []
    assert add_topology(client(target, "ec2"), "demo", nodes, told.append) == tuple(nodes)
    assert told[-1] == Progress("topology", "demo", "done", "EC2 reports none for this type")


def test_without_the_permission_ranks_are_in_the_order_of_launch(
    region: tuple[World, Target], tmp_path: Path
) -> None:
    world, target = region
    nodes = launched(world, 2)
    fault_table.write(tmp_path / "faults.json", {"api-error": ("1", "UnauthorizedOperation")})
    told: list[Progress] = []
    assert add_topology(client(target, "ec2"), "demo", nodes, told.append) == tuple(nodes)
    assert told[-1].state == "done"
    assert told[-1].detail.startswith(
        "ranks in the order of launch: AWS refused DescribeInstanceTopology: UnauthorizedOperation:"
    )


def test_every_node_has_its_topology_when_the_answer_has_many_pages(
    region: tuple[World, Target],
) -> None:
    """A request takes 100 ids, and an answer has 20 instances."""
    world, target = region
    one = {"InstanceType": "g6e.8xlarge", "SubnetId": world.subnet}
    nodes = [
        Node(rank=n, name=f"n{n}", instance_id=each, private_ip="10.0.0.4", gpus=8, slots=8)
        for n, each in enumerate(world.run(130, **one))
    ]
    for count in (20, 21, 100, 130):
        found = add_topology(client(target, "ec2"), "demo", nodes[:count], silent)
        assert [len(node.topology) for node in found] == [3] * count


def test_a_cluster_of_one_node_needs_no_topology(
    region: tuple[World, Target], tmp_path: Path
) -> None:
    world, target = region
    nodes = tuple(launched(world, 1))
    fault_table.write(tmp_path / "faults.json", {"throttle": ("1",)})  # every request is refused
    assert add_topology(client(target, "ec2"), "demo", nodes, silent) == nodes
