"""Files with `hosts`: the machines that they mean."""

from pathlib import Path

import pytest

from config.cluster.hosts_file import Host, HostsCluster
from config.errors import InvalidFiles
from config.loading.load import load_any_cluster, load_cluster

FILE = """\
name: lab7
hosts:
  - address: 10.0.0.[11-12]
  - address: gpu9.example.org
    user: research
    port: 2222
    identity: ~/.ssh/lab7
    jump: login.example.org
    internal: 192.168.3.9
user: ubuntu
jump: door
"""


def test_a_file_means_one_host_for_each_address_with_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "lab7.yaml"
    path.write_text(FILE)
    cluster = load_any_cluster(path)
    assert isinstance(cluster, HostsCluster)
    assert cluster.machines == (
        Host(address="10.0.0.11", user="ubuntu", jump="door"),
        Host(address="10.0.0.12", user="ubuntu", jump="door"),
        Host(
            address="gpu9.example.org",
            user="research",
            port=2222,
            identity="~/.ssh/lab7",
            jump="login.example.org",
            internal="192.168.3.9",
        ),
    )


def test_a_command_for_rented_clusters_refuses_a_file_with_hosts(tmp_path: Path) -> None:
    path = tmp_path / "lab7.yaml"
    path.write_text(FILE)
    with pytest.raises(InvalidFiles) as caught:
        load_cluster(path)
    assert str(caught.value) == (
        f"{path}:2:1: E107 this cluster is of machines that exist: gpuctl rents and prices nothing"
        " for it; `gpuctl up FILE` shows what it writes on them, and asks"
    )
