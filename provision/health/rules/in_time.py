"""In time: no command that asks for facts hangs."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each command that had to be ended; a hanging GPU or file system does that."""
    for name in facts.ended:
        yield Deviation(f"facts about {_WORDS.get(name, name)}", "an answer in time", "none")


_WORDS = {
    "gpus": "the GPUs",
    "remap": "remapped rows",
    "disk": "disks",
    "verify": "the node's software",
}

RULE = Rule(
    id="in-time",
    reads="each command, with its limit of 5 to 90 s",
    expects="an end by itself",
    severity="reboot",
    remedy=REBOOT,
    source="docs/develop/node-health.md",
    check=check,
    is_short=True,
)
