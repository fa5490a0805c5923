"""The hardware of a node that determines its software."""

from collections.abc import Sequence
from dataclasses import dataclass

from config.catalogue.instance_types import COMPUTE_CAPABILITY, catalogue
from config.cluster.resolved import InstanceType, Interface


@dataclass(frozen=True)
class Hardware:
    """The hardware of an instance type as launched.

    `sm` is the GPU's architecture as nvcc numbers it, empty if gpuctl does not know it.
    `local_disks` is the number of its NVMe disks.
    """

    instance_type: str
    gpus: int
    sm: str
    efa: int
    nvswitch: bool
    local_disks: int = 0

    @property
    def nvlink5(self) -> bool:
        """Return whether a subnet manager must manage the switches, as those of B200 and B300.

        https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html, "Systems
        using fourth generation NVSwitches", quoted in
        https://github.com/awslabs/amazon-eks-ami/pull/2239 (2026-11-22).
        """
        return self.nvswitch and self.sm in ("100", "103")


def hardware(instance: InstanceType, interfaces: Sequence[Interface]) -> Hardware:
    """Return the type's hardware, with as many EFA devices as the launch layout has."""
    entry = catalogue().get(instance.name)
    model = entry.gpu.model if entry else instance.gpu_model.removeprefix("NVIDIA ")
    return Hardware(
        instance_type=instance.name,
        gpus=instance.gpus,
        sm=COMPUTE_CAPABILITY.get(model, "") if instance.gpus else "",
        efa=sum(interface.type != "interface" for interface in interfaces),
        nvswitch=entry is not None and entry.fabricmanager and instance.gpus > 0,
        local_disks=instance.local_disks,
    )
