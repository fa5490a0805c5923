from ipaddress import IPv4Network

import pytest

from infra.program.subnets import carve


@pytest.mark.parametrize(
    ("cidr", "public", "private", "nodes"),
    [
        ("10.213.0.0/16", "10.213.0.0/28", "10.213.128.0/17", 32763),
        ("192.168.7.0/24", "192.168.7.0/28", "192.168.7.128/25", 123),
    ],
)
def test_nodes_have_the_upper_half(cidr: str, public: str, private: str, nodes: int) -> None:
    subnets = carve(cidr)
    assert (subnets.public, subnets.private) == (IPv4Network(public), IPv4Network(private))
    assert subnets.node_addresses == nodes
