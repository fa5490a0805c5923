"""What the program made, as the rest of gpuctl needs it."""

from config.models import Value


class FleetNode(Value):
    """A node's instance; `public_ip` is empty where it has none."""

    name: str
    instance_id: str
    private_ip: str
    public_ip: str = ""


class Fleet(Value):
    """A cluster's instances and where they lie; `nodes` are in rank order.

    The bastion's id and address are empty where there is none.
    """

    vpc_id: str
    subnet_id: str
    bastion_id: str
    bastion_address: str
    nodes: tuple[FleetNode, ...]
