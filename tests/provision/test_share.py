"""What every node gets, so that it reaches the others."""

from pathlib import Path

from nodes.inventory import Inventory, Node
from provision.setup.bootstrap import share_of
from provision.setup.host_keys import KnownHosts
from provision.setup.nodes_key import NodesKey


def test_nodes_know_each_other_by_gpuctls_names_and_by_aws_own(tmp_path: Path) -> None:
    nodes = tuple(
        Node(
            rank=rank,
            name=f"node{rank}",
            instance_id=f"i-{rank}",
            private_ip=f"10.0.0.{rank + 4}",
            gpus=8,
            slots=8,
        )
        for rank in range(2)
    )
    inventory = Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        bastion=None,
        nodes=nodes,
        folder=tmp_path,
    )
    share = share_of(inventory, KnownHosts.read(tmp_path / "known_hosts", ()), NodesKey("", ""))
    assert "10.0.0.4 node0 ip-10-0-0-4\n10.0.0.5 node1 ip-10-0-0-5\n# gpuctl: end" in share.script
