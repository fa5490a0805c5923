"""What a run's network was promised to be: part of the launch plan, and what the proof goes by."""

from typing import Literal

from config.models import Value


class NetworkPlan(Value):
    """The network preset that the run's environment has, and what NCCL's lines must prove.

    `promises` is the transport that the preset stands for, empty where it promises no RDMA
    (tcp, none). `interfaces` is how many EFA interfaces a node of the run has, 0 where NCCL's count
    is not to be compared. `gpudirect`: the type can do GPUDirect RDMA, so that a connection without
    it is a fault. `verify`: see the run file; `auto` where it says nothing.
    """

    preset: Literal["efa", "infiniband", "roce", "hcc", "tcp", "none"] = "none"
    promises: Literal["efa", "infiniband", "roce", ""] = ""
    interfaces: int = 0
    gpudirect: bool = False
    verify: Literal["auto", "off", "warn", "require"] = "auto"
