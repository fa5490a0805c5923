"""The instances that the Pulumi program created, as values for the rest of gpuctl."""

from collections.abc import Mapping
from types import MappingProxyType

from config.models import Value

OUTPUT = "fleet"
"""The stack's one output: the `Fleet` as a mapping."""

Claims = Mapping[str, str]
"""The id of the capacity reservation that a new node is launched into, by the node's name."""

NO_CLAIMS: Claims = MappingProxyType({})


class FleetNode(Value):
    """A node's instance; `public_ip` is empty if it has none."""

    name: str
    instance_id: str
    private_ip: str
    public_ip: str = ""


class Fleet(Value):
    """A cluster's instances and their network; `nodes` are in rank order.

    The bastion's id and address are empty if there is none.
    """

    vpc_id: str
    subnet_id: str
    bastion_id: str
    bastion_address: str
    nodes: tuple[FleetNode, ...]
