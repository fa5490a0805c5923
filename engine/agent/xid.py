"""Xid errors of NVIDIA's driver: the meaning of each number, and what to do.

What to do is AWS's reading of NVIDIA's catalog r590: aws-samples/awsome-distributed-training
@7217859f (2026-02-21), 4.validation_and_observability/2.gpu-cluster-healthcheck/README.md. The
meanings are the names in NVIDIA's catalog,
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, and in open-gpu-kernel-modules
@0b7b8041, src/common/sdk/nvidia/inc/nverror.h (both 2026-11-23); where neither gave one, the group
of AWS's table is named.
"""

from __future__ import annotations

from typing import NamedTuple

_ACTIONS = ("replace", "reboot", "reset", "program", "watch")  # the gravest first

_REMEDIES = {
    "replace": "terminate the instance, then `gpuctl up` creates the node again",
    "reboot": "reboot the node; if the error comes again, terminate the instance and repeat"
    " `gpuctl up`",
    "reset": "reset the GPU (`nvidia-smi --gpu-reset` on the node while no job runs) or reboot the"
    " node; if the error comes again, terminate the instance and repeat `gpuctl up`",
    "program": "usually an error of the program; if it comes again on this GPU alone, replace the"
    " node",
    "watch": "no action is needed for this error alone",
}

_DERIVED = (
    ("Node Reboot Required", "reboot"),
    ("GPU Reset Required", "reset"),
    ("Drain and Reset", "reset"),
    ("Drain P2P", "reset"),
)
"""What Xid 154 says in its text, and the action that follows."""


class Xid(NamedTuple):
    """The meaning of an error, and the action against it: a key of `_REMEDIES`."""

    meaning: str
    action: str

    @property
    def remedy(self) -> str:
        """Return what to do, as one sentence without its end."""
        return _REMEDIES[self.action]

    @property
    def gravity(self) -> int:
        """Return 0 for the gravest errors, and more for others."""
        return _ACTIONS.index(self.action)

    @property
    def ends_jobs(self) -> bool:
        """Return whether a job with such an error ends for that reason."""
        return self.action in ("replace", "reboot", "reset")

    def with_text(self, text: str) -> Xid:
        """Return the entry as the error's text changes it: that of Xid 154 names the action."""
        if self is not XIDS[154]:
            return self
        for words, action in _DERIVED:
            if words in text:
                return self._replace(action=action)
        return self


XIDS = {
    13: Xid("exception in the graphics engine", "program"),
    31: Xid("memory page fault of the GPU", "program"),
    43: Xid("the GPU stopped processing for a fault of the program", "program"),
    45: Xid("the program ended, and the driver removed its channels", "watch"),
    48: Xid("double-bit ECC error", "reset"),
    54: Xid("hardware or mechanical fault", "replace"),
    63: Xid("a faulty row or page of memory was recorded for remapping", "watch"),
    64: Xid("a faulty row or page of memory could not be recorded for remapping", "reset"),
    74: Xid("NVLink error", "reset"),
    79: Xid("the GPU has fallen off the bus", "reboot"),
    81: Xid("error of the VGA subsystem", "watch"),
    92: Xid("high rate of single-bit ECC errors", "watch"),
    94: Xid("contained ECC error", "program"),
    95: Xid("uncontained ECC error", "reset"),
    109: Xid("context switch timeout", "reset"),
    110: Xid("security fault", "reset"),
    119: Xid("the GPU's system processor (GSP) did not answer in time", "reset"),
    120: Xid("error of the GPU's system processor (GSP)", "reset"),
    121: Xid("corrected error of the link between chips (C2C)", "watch"),
    125: Xid("error of the GPU's InfoROM", "watch"),
    126: Xid("error that a restart of the program clears", "program"),
    136: Xid("error that a reset of the GPU clears", "reset"),
    140: Xid("unrecovered ECC error", "reset"),
    143: Xid("the GPU failed to initialize", "reset"),
    **{number: Xid("NVLink 5 error", "watch") for number in range(144, 151)},
    151: Xid("error that a restart of the machine clears", "reboot"),
    154: Xid("the driver changed the action that it asks for", "watch"),
    155: Xid("NVLink error that a reset of the GPU clears", "reset"),
    156: Xid("error of resources that a reset of the GPU clears", "reset"),
    157: Xid("error of resources", "watch"),
    158: Xid("fatal timeout of the GPU", "reset"),
    162: Xid("notice of the power smoothing circuit", "watch"),
    163: Xid("notice of the power smoothing circuit", "watch"),
    164: Xid("the power smoothing circuit is near the end of its life", "watch"),
    165: Xid("the power smoothing circuit is at the end of its life", "watch"),
    168: Xid("the GPU did not boot with its memory protected", "reboot"),
}

UNKNOWN = Xid("an error that this table does not have", "program")
SWITCH = Xid("error of an NVSwitch", "reset")
