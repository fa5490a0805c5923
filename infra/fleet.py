"""The instances that the Pulumi program created, as values for the rest of gpuctl."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import ValidationError

from config.command_text import command_text
from config.errors import InfraError
from config.foreign import first_mistake
from config.identifiers import InstanceId, NodeName, SshHost
from config.models import Value

OUTPUT = "fleet"
"""The stack's one output: the `Fleet` as a mapping."""

Claims = Mapping[str, str]
"""The id of the capacity reservation that a new node is launched into, by the node's name."""

NO_CLAIMS: Claims = MappingProxyType({})


class FleetNode(Value):
    """A node's instance; `public_ip` is empty if it has none."""

    name: NodeName
    instance_id: InstanceId
    private_ip: SshHost
    public_ip: SshHost | Literal[""] = ""


class Fleet(Value):
    """A cluster's instances and their network; `nodes` are in rank order.

    The bastion's id and address are empty if there is none.
    """

    vpc_id: str
    subnet_id: str
    bastion_id: InstanceId | Literal[""]
    bastion_address: SshHost | Literal[""]
    nodes: tuple[FleetNode, ...]


def read_fleet(value: object, stack: str) -> Fleet:
    """Return the fleet in an output of Pulumi's state; InfraError if it has another form.

    In a team's bucket somebody else may have written the state.
    """
    try:
        return Fleet.model_validate(value)
    except ValidationError as error:
        raise InfraError(
            f"Pulumi's state of cluster {stack} has no fleet: {first_mistake(error)}",
            "somebody else has written it: restore an earlier version, or remove the cluster by"
            f" {command_text('gpuctl down {}', stack)}",
        ) from None
