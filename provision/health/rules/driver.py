"""Driver: the module that runs is that of the installed libraries, and of the pinned branch."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule, from_checks

MISMATCH = "version mismatch"
"""Words of nvidia-smi if the module in the kernel is older than the installed libraries."""


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield a stale driver, and one of another branch than the cluster file's."""
    if MISMATCH in facts.smi_error:
        yield Deviation("NVIDIA driver", "the version of its libraries", facts.smi_error)
    for finding in from_checks(facts, "NVIDIA driver branch"):
        yield Deviation(finding.subject, finding.expected, finding.seen, "isolate", _OTHER_BRANCH)


_OTHER_BRANCH = "name an image with this driver, or change `software.driver`, then `gpuctl up`"

RULE = Rule(
    id="driver",
    reads="`nvidia-smi`",
    expects="a running driver of the version of its libraries, of the branch `software.driver`",
    severity="isolate",
    remedy="reboot the node: the driver was updated after the boot",
    source="nvidia-smi's error NVML_ERROR_LIB_RM_VERSION_MISMATCH (18), NVML API Reference",
    check=check,
    is_short=True,
)
