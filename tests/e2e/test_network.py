"""A cluster without a bastion, on machines that boot."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file
from tests.e2e.region import what_bills

pytestmark = pytest.mark.lab


def test_nodes_with_public_addresses_of_their_own(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "direct", network={"access": "elastic-ip"})
    output = gpuctl("--lab", "up", str(file), "--yes")
    assert "aws:ec2/natGateway" not in output
    assert "Cluster direct is ready\n  rank 0  node0  10.213." in output

    came_from, _, at, port = gpuctl(
        "--lab", "ssh", "direct", "node1", "echo $SSH_CONNECTION"
    ).split()
    assert came_from == "198.18.255.1", "this machine itself, not a bastion"
    assert f"  {at}  i-" in output
    assert port == "22"
    assert gpuctl("--lab", "exec", "direct", "--", "nproc").startswith("--- node[0-1]\n")
    refused = gpuctl("--lab", "ssh", "direct", "bastion", code=2)
    assert "cluster direct has no 'bastion'; it has node0, node1" in refused

    assert "No changes: the cluster is what the file says." in gpuctl(
        "--lab", "up", str(file), "--yes"
    )
    gpuctl("--lab", "down", "direct", "--yes")
    assert what_bills(gpuctl, "direct") == {}
