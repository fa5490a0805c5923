"""How a cluster's address range is carved into its two subnets."""

from dataclasses import dataclass
from ipaddress import IPv4Network

RESERVED = 5
"""Addresses of every subnet that AWS keeps: the first four and the last.

Source: AWS, "Subnet CIDR blocks" (VPC User Guide, 2026-11-20)."""


@dataclass(frozen=True)
class Subnets:
    """`public` holds the bastion and the NAT gateway, `private` the nodes.

    Nodes with public addresses of their own are in `private` as well, and then it is public.
    """

    public: IPv4Network
    private: IPv4Network

    @property
    def node_addresses(self) -> int:
        """How many addresses the nodes may have; `efa-only` interfaces take none."""
        return self.private.num_addresses - RESERVED


def carve(cidr: str) -> Subnets:
    """The private subnet is the upper half of `cidr`, the public one the first /28 of the lower.

    A /28 is the smallest subnet that AWS makes.
    """
    lower, upper = IPv4Network(cidr).subnets(prefixlen_diff=1)
    return Subnets(public=next(lower.subnets(new_prefix=28)), private=upper)
