"""Rules about the health of nodes, and what they find."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from config.errors import GpuctlError
from config.models import Value
from provision.health.facts import NodeFacts

Severity = Literal["isolate", "reboot", "reset", "watch"]

SEVERITIES: tuple[Severity, ...] = ("isolate", "reboot", "reset", "watch")
"""The gravest first. With the last one a node is fit for jobs.

The words and their order are those of AWS's health check, without PASS:
awslabs/awsome-distributed-ai @95b939cd, 4.validation_and_observability/2.gpu-cluster-healthcheck
(2026-11-20)."""

REPLACE = "`gpuctl heal` replaces the node, or takes your own machine out of service"
REBOOT = "reboot the node; if it comes again: `gpuctl heal`"


@dataclass(frozen=True)
class Expected:
    """What the cluster's type and file say about each node.

    `model` is the GPU's name in the catalogue, empty if unknown; `nvlinks` the links of a GPU, 0
    without NVSwitch; `has_gpudirect` whether EFA reaches the GPUs' memory on this type. `addresses`
    are the cluster's nodes by name. `has_checks`: a set-up by gpuctl has left its checks there.
    """

    gpus: int = 0
    model: str = ""
    nvlinks: int = 0
    efa: int = 0
    has_gpudirect: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict)
    has_checks: bool = True


@dataclass(frozen=True)
class AllFacts:
    """All nodes at one moment: facts by name, or the error with which a node did not answer.

    `offsets` are the least seconds that clocks are off this machine's; `unreached` are the
    complaints of the head about nodes that it does not reach; `slow` are nodes that a bisect named.
    """

    expected: Expected
    answers: Mapping[str, NodeFacts | GpuctlError]
    offsets: Mapping[str, float] = field(default_factory=dict)
    unreached: Mapping[str, str] = field(default_factory=dict)
    slow: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, NodeFacts]:
        """Return the facts of the nodes that answered."""
        return {
            name: answer for name, answer in self.answers.items() if isinstance(answer, NodeFacts)
        }


@dataclass(frozen=True)
class Deviation:
    """A node shows something else than expected.

    `subject` is the thing (`GPUs`); `severity` and `remedy` are the rule's if empty.
    """

    subject: str
    expected: str
    seen: str
    severity: Severity | None = None
    remedy: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule about one node, whose name and facts it gets, with those of all others.

    `reads` says where the facts come from, `expects` what is good, both in words; `severity` is
    that of its gravest deviation. `source` says who says so. `is_short`: it is also checked before
    a run.
    """

    id: str
    reads: str
    expects: str
    severity: Severity
    remedy: str
    source: str
    check: Callable[[str, NodeFacts, AllFacts], Iterable[Deviation]]
    is_short: bool = False


class Finding(Value):
    """A deviation of a node from what a rule expects."""

    rule: str
    node: str
    subject: str
    expected: str
    seen: str
    severity: Severity
    remedy: str
    source: str

    @property
    def text(self) -> str:
        """Return what was expected and seen, in one line."""
        return f"{self.subject}: expected {self.expected}, actual {self.seen}"

    @property
    def is_grave(self) -> bool:
        """Return whether no job should use the node."""
        return self.severity != "watch"


def from_checks(facts: NodeFacts, *subjects: str) -> list[Deviation]:
    """Return the deviations that the node's own checks of these names found."""
    failed = facts.checks or {}
    return [Deviation(name, *failed[name]) for name in subjects if name in failed]
