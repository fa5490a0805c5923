"""The table of rules, in the order of findings."""

from provision.health.model import Rule
from provision.health.rules import gpus, network, system

RULES: tuple[Rule, ...] = (
    system.IN_TIME,
    gpus.GPUS,
    gpus.DRIVER,
    gpus.FABRIC_MANAGER,
    gpus.NVLINK,
    gpus.ECC,
    gpus.ROW_REMAPPING,
    gpus.XID,
    gpus.THROTTLING,
    gpus.PERSISTENCE,
    network.EFA,
    network.GPUDIRECT,
    network.MEMLOCK,
    system.SOFTWARE,
    system.MOUNTS,
    system.VERSIONS,
    system.CLOCK,
    network.NAMES,
    network.NODE_SSH,
    system.DISK,
)

DEEP_RULES: tuple[Rule, ...] = (gpus.DCGM, network.LOOPBACK, network.PAIRS)
"""The rules of `--deep`: their facts take minutes, and no run can use the nodes meanwhile."""
