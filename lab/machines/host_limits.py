"""What this host does not let the lab's machines have, so that no node is blamed for it."""

import resource
from pathlib import Path

_CAP_SYS_RESOURCE = 24  # capability.h: raise resource limits


def locked_memory() -> int | None:
    """Bytes that a process in a machine may lock at most; None when the lab can lift the limit.

    EFA's driver locks what it registers; on AWS the limit is lifted. Some virtual machines lack
    the capability to do so even for root, and then this is the lab's limit, not a node's fault.
    """
    if _may_raise_limits():
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if hard == resource.RLIM_INFINITY else hard


def _may_raise_limits() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False
