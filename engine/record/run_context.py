"""The setting of a run, which the history keeps for reports: where it ran, and its environment."""

from pydantic import Field

from config.models import Value
from config.sensitive import hide_secrets
from engine.contract.plan import LaunchPlan
from nodes.inventory import Inventory


class Setting(Value):
    """The place and the environment in which a run was started.

    `environment` has the variables that all nodes share. A value that looks like a secret is
    replaced by `***` before it is kept. `secrets` are the names of the variables that were filled
    from secrets; their values are not kept at all.
    """

    type: str
    region: str
    zone: str
    instance_type: str
    is_spot: bool
    image: str = ""
    environment: dict[str, str] = Field(default={})
    secrets: tuple[str, ...] = ()


def setting(plan: LaunchPlan, inventory: Inventory) -> Setting:
    """Return the setting of the plan on these nodes."""
    first, *others = (node.environment for node in plan.nodes)
    shared = {
        name: hide_secrets(name, value)
        for name, value in sorted(first.items())
        if all(other.get(name) == value for other in others)
    }
    image = plan.image
    return Setting(
        type=plan.type,
        region=inventory.region,
        zone=inventory.zone,
        instance_type=inventory.instance_type,
        is_spot=plan.is_spot,
        image="" if image is None else f"{image.reference} {image.digest or image.id}".strip(),
        environment=shared,
        secrets=tuple(sorted({name for node in plan.nodes for name in node.secrets})),
    )
