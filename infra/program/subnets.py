"""The division of a cluster's address range into its two subnets."""

from dataclasses import dataclass
from ipaddress import IPv4Network

RESERVED = 5
"""The number of addresses that AWS reserves in every subnet: the first four and the last.

Source: AWS, "Subnet CIDR blocks" (VPC User Guide, 2026-11-20)."""


@dataclass(frozen=True)
class Subnets:
    """The address ranges of two subnets: `public` for bastion and NAT gateway, `private` for nodes.

    Nodes with public addresses are in `private` too; that subnet is then the public one.
    """

    public: IPv4Network
    private: IPv4Network

    @property
    def node_addresses(self) -> int:
        """The number of addresses for nodes; `efa-only` interfaces need none."""
        return self.private.num_addresses - RESERVED


def carve(cidr: str) -> Subnets:
    """Return the subnets: the upper half of `cidr` is private, the first /28 of the lower public.

    A /28 is the smallest subnet that AWS allows.
    """
    lower, upper = IPv4Network(cidr).subnets(prefixlen_diff=1)
    return Subnets(public=next(lower.subnets(new_prefix=28)), private=upper)
