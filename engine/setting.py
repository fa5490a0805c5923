"""The setting of a run, which the history keeps for reports: where it ran, and its environment."""

import re

from pydantic import Field

from config.models import Value
from engine.launch_plan import LaunchPlan
from engine.secrets import CREDENTIALS
from nodes.inventory import Inventory

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS(WORD|WD|PHRASE)|CREDENTIAL|AUTH|(API|ACCESS|PRIVATE)_?KEY|_KEY$", re.I
)
_SECRET_VALUE = re.compile(
    r"(?<=://)[^/\s@]+(?=@)"  # user and password of a URL
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b|\b(gh[a-z]|hf|glpat|xox[a-z]|sk|pk)[_-][A-Za-z0-9_-]{16,}"
    r"|\beyJ[\w-]+\.[\w.-]+|-----BEGIN [^-]*PRIVATE KEY-----[\s\S]*"
)
"""The beginnings of access keys of AWS, of tokens of well-known services, of JSON web tokens."""


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


def hide_secrets(name: str, value: str) -> str:
    """Return the variable's value without what looks like a secret in it."""
    if _SECRET_NAME.search(name) or CREDENTIALS.fullmatch(name):
        return HIDDEN
    return _SECRET_VALUE.sub(HIDDEN, value)
