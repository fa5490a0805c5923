"""What the program made, as the rest of gpuctl needs it."""

from config.resolved import Value


class FleetNode(Value):
    """A node's instance."""

    name: str
    instance_id: str
    private_ip: str


class Fleet(Value):
    """A cluster's instances and where they lie; `nodes` are in rank order."""

    vpc_id: str
    subnet_id: str
    bastion_id: str
    bastion_address: str
    nodes: tuple[FleetNode, ...]
