"""The table of rules, in the order of findings: one file each."""

from provision.health.model import Rule
from provision.health.rules import (
    clock,
    dcgm,
    disk,
    driver,
    ecc,
    efa,
    fabric_manager,
    gpudirect,
    gpus,
    in_time,
    loopback,
    memlock,
    mounts,
    names,
    node_ssh,
    nvlink,
    pairs,
    persistence,
    row_remapping,
    software,
    throttling,
    versions,
    xid,
)

RULES: tuple[Rule, ...] = tuple(
    module.RULE
    for module in (
        in_time,
        gpus,
        driver,
        fabric_manager,
        nvlink,
        ecc,
        row_remapping,
        xid,
        throttling,
        persistence,
        efa,
        gpudirect,
        memlock,
        software,
        mounts,
        versions,
        clock,
        names,
        node_ssh,
        disk,
    )
)

DEEP_RULES: tuple[Rule, ...] = (dcgm.RULE, loopback.RULE, pairs.RULE)
"""The rules of `--deep`: their facts take minutes, and no run can use the nodes meanwhile."""
