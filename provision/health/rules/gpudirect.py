"""GPUDirect: EFA's driver reaches the memory of the GPUs."""

from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, AllFacts, Deviation, Rule

_SUBJECT = "GPUDirect RDMA"


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a driver that says that it cannot; that libfabric finds no device is only a hint."""
    expected = fleet.expected
    if not expected.has_gpudirect or not expected.efa:
        return []
    if facts.p2p is not None:
        without = [device for device in facts.p2p if not device.startswith("NVIDIA")]
        seen = f"{len(without)} of {len(facts.p2p)} EFA devices without it"
        return [Deviation(_SUBJECT, "peer memory on every EFA device", seen)] if without else []
    if facts.hmem is None or facts.hmem >= expected.efa:
        return []
    seen = f"libfabric finds {facts.hmem}"
    required = f"{expected.efa} EFA devices with GPU memory"
    return [Deviation(_SUBJECT, required, seen, "watch", _WATCH)]


_WATCH = "the transport of a run shows whether NCCL uses it: `gpuctl results RUN`"

RULE = Rule(
    id="gpudirect",
    reads="/sys/class/infiniband/*/device/p2p, or else `fi_info -p efa -t FI_EP_RDM -c FI_HMEM`",
    expects="NVIDIA's peer memory for every device, on types with GPUDirect RDMA",
    severity="reboot",
    remedy=f"check that `lsmod` has efa and nvidia (the driver must be there before EFA), then"
    f" {REBOOT}",
    source="p2p_show in amzn-drivers, kernel/linux/efa/src/efa_sysfs.c; aws-ofi-nccl #889"
    " (2026-11-23)",
    check=check,
)
