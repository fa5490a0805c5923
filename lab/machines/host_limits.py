"""The limits that this host sets for the lab's machines, so that no check blames a node."""

import resource
from pathlib import Path

_CAP_SYS_RESOURCE = 24  # capability.h: raise resource limits


def locked_memory() -> int | None:
    """Return the bytes that a machine's process may lock; None if the lab can remove the limit.

    EFA's driver locks the memory that it registers; instances on AWS have no limit. On some
    virtual machines even root lacks the capability to remove it: then the limit is the host's, and
    no defect of a node.
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
