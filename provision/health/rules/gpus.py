"""GPUs: as many as the type has, and of its model."""

import re
from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import REPLACE, AllFacts, Deviation, Rule, from_checks
from provision.health.rules.driver import MISMATCH

TIMED_OUT = "nvidia-smi did not end in time"


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield a GPU too few or too many, and GPUs of another model."""
    expected = fleet.expected
    if facts.gpus is None or not expected.gpus or MISMATCH in facts.smi_error:
        return  # a mismatch of driver and library is the rule `driver`'s
    if len(facts.gpus) != expected.gpus:
        seen = facts.smi_error or str(len(facts.gpus))
        yield Deviation("GPUs", str(expected.gpus), seen)
    yield from from_checks(facts, "GPUs that DCGM finds")
    for name in sorted({gpu.name for gpu in facts.gpus}):
        if not _is_model(expected.model, name):
            yield Deviation("model of the GPUs", expected.model, name)


def _is_model(model: str, name: str) -> bool:
    """Return whether nvidia-smi's name has all words of the model: `NVIDIA H100 80GB HBM3`."""
    words = set(re.split(r"[ -]", name))
    return all(word in words for word in model.split())


RULE = Rule(
    id="gpus",
    reads="`nvidia-smi --query-gpu`, `dcgmi discovery -l`",
    expects="the number of GPUs and the model of the instance type",
    severity="isolate",
    remedy=REPLACE,
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 0",
    check=check,
    is_short=True,
)
