"""The network that a run is promised: part of the launch plan, input of engine/agent/proof.py."""

from typing import Literal

from config.models import Value
from config.run.run_file import PresetName

Transport = Literal["efa", "infiniband", "roce"]
"""Promises that NCCL's lines can prove: `engine/agent/proof.py` has the lines of each."""


class NetworkPlan(Value):
    """The network preset of the run's environment, and what NCCL's lines must prove.

    `promises` is the preset's transport, empty if the preset promises no RDMA (tcp, none).
    `interfaces` is the number of EFA interfaces of each node, 0 if NCCL's number is not checked.
    `gpudirect` means that a connection without GPUDirect RDMA is a failure. `verify` is of the run
    file, by default `auto`.
    """

    preset: PresetName = "none"
    promises: Transport | Literal[""] = ""
    interfaces: int = 0
    gpudirect: bool = False
    verify: Literal["auto", "off", "warn", "require"] = "auto"
