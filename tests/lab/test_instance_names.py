"""Instances of the lab by the names that people use."""

import pytest

from config.errors import InputError
from lab.machines.instance_names import instance_ids
from tests.lab.world import world


def test_an_instance_is_found_by_its_id_and_names() -> None:
    with world() as region:
        with pytest.raises(InputError) as caught:
            instance_ids(["demo-node1"], region.ec2)
        assert str(caught.value) == (
            "no instance 'demo-node1' runs in us-east-1 of the lab;"
            " bring one up: `gpuctl --lab up FILE`"
        )
        tags = {"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "demo-node1"}]}
        (node,) = region.run(TagSpecifications=[tags])
        (unnamed,) = region.run()
        for name in (node, "demo-node1", "node1"):
            assert instance_ids([name, unnamed], region.ec2) == (node, unnamed)
        with pytest.raises(InputError) as caught:
            instance_ids(["node1"], region.ec2, spot=True)
        assert str(caught.value) == (
            "no spot instance 'node1' runs in us-east-1 of the lab;"
            " bring one up: `capacity: {type: spot}`"
        )
        with pytest.raises(InputError) as caught:
            instance_ids(["node2"], region.ec2)
        assert caught.value.hint == "there are: demo-node1"
