"""Xid errors of NVIDIA's driver: the meaning of each number, and what to do.

Each row has its entry in NVIDIA's catalogue, "Resolution Bucket (Immediate Action)" of
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for Ampere and newer. All rows
were read again on 2026-11-26: 1 to 13 on that page, the others in two copies of it, an undated one
and leptonai/gpud @4a8de33a, components/accelerator/nvidia/xid/catalog_generated.go (made of
NVIDIA's spreadsheet on 2025-10-29), which agree. A newer edition could not be read.

The action is the one of the bucket (`_ACTION_OF`), except where a row names another:
- 43, 45, 48, 74, 144 to 150, 168: as AWS reads the catalogue, awslabs/awsome-distributed-ai
  @95b939cd (2026-07-23), 4.validation_and_observability/2.gpu-cluster-healthcheck/README.md.
- 64: the memory cannot repair itself any more, for which NVIDIA replaces the GPU;
  awslabs/awsome-distributed-ai pull request 1190 (2026-07-15).
- 95: an A100 without MIG must be rebooted (the same README, and NVIDIA's GPU Debug Guidelines as
  quoted there); a reboot clears it on the others too.
- 159: a reset, if unified memory (UVM) is in use, which each program of CUDA loads (the README).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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

_ACTION_OF = {
    "CHECK_MECHANICALS": "replace",
    "RESTART_BM": "reboot",
    "RESTART_VM": "reboot",
    "RESET_GPU": "reset",
    "RESTART_APP": "program",
    "IGNORE": "watch",
    "CONTACT_SUPPORT": "watch",  # NVIDIA calls these errors unused
    "XID_154": "watch",
    "": "watch",  # NVIDIA names no action
}

_DERIVED = (
    ("Node Reboot Required", "reboot"),
    ("OS Reboot", "reboot"),
    ("GPU Reset Required", "reset"),
    ("PF FLR", "reset"),
    ("Drain and Reset", "reset"),
    ("Drain P2P", "reset"),
)
"""What Xid 154 says in its text, and the action that follows. `OS Reboot` and `PF FLR` (a reset by
PCIe) are the words of driver 610, by kernel logs that people have published (2026-11-26)."""


class Xid(NamedTuple):
    """The meaning of an error, NVIDIA's bucket, and the action: a key of `_REMEDIES`."""

    meaning: str
    bucket: str
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
        """Return the entry as the error's text changes it: that of Xid 154 names the action.

        It names the action before the change too: "from 0x0 (None) to 0x2 (Node Reboot Required)".
        """
        if self is not XIDS[154]:
            return self
        for words, action in _DERIVED:
            if words in text.rpartition(" to ")[2]:
                return self._replace(action=action)
        return self


def _xid(meaning: str, bucket: str, action: str = "") -> Xid:
    return Xid(meaning, bucket, action or _ACTION_OF[bucket])


XIDS = {
    8: _xid("the GPU stopped processing", "RESTART_APP"),
    13: _xid("exception in the graphics engine", "RESTART_APP"),
    31: _xid("memory page fault of the GPU", "RESTART_APP"),
    32: _xid("invalid or corrupted stream of commands", "RESTART_APP"),
    43: _xid("the GPU stopped processing for a fault of the program", "IGNORE", "program"),
    45: _xid("the program ended, and the driver removed its channels", "WORKFLOW_XID_45", "watch"),
    46: _xid("the GPU stopped processing, and a reset clears it", "RESET_GPU"),
    48: _xid("double-bit ECC error", "WORKFLOW_XID_48", "reset"),
    54: _xid("hardware or mechanical fault", "CHECK_MECHANICALS"),
    62: _xid("the GPU's microcontroller halted", "RESET_GPU"),
    63: _xid("a faulty row or page of memory was recorded for remapping", "IGNORE"),
    64: _xid(
        "a faulty row or page of memory could not be recorded for remapping",
        "RESET_GPU",
        "replace",
    ),
    74: _xid("NVLink error", "WORKFLOW_NVLINK_ERR", "reset"),
    79: _xid("the GPU has fallen off the bus", "RESTART_BM"),
    81: _xid("error of the VGA subsystem", "CONTACT_SUPPORT"),
    92: _xid("high rate of single-bit ECC errors", "IGNORE"),
    94: _xid("contained ECC error", "RESTART_APP"),
    95: _xid("uncontained ECC error", "RESET_GPU", "reboot"),
    109: _xid("context switch timeout", "RESET_GPU"),
    110: _xid("security fault", "RESET_GPU"),
    119: _xid("the GPU's system processor (GSP) did not answer in time", "RESET_GPU"),
    120: _xid("error of the GPU's system processor (GSP)", "RESET_GPU"),
    121: _xid("corrected error of the link between chips (C2C)", "IGNORE"),
    125: _xid("error of the GPU's InfoROM", "CONTACT_SUPPORT"),
    126: _xid("error of a copy engine", "RESTART_APP"),
    136: _xid("an NVLink could not be trained", "RESET_GPU"),
    137: _xid("invalid access of a program to another GPU by NVLink", "IGNORE", "program"),
    140: _xid("unrecovered ECC error", "RESET_GPU"),
    143: _xid("the GPU failed to initialize", "RESET_GPU"),
    **{
        number: _xid("NVLink 5 error", "WORKFLOW_NVLINK5_ERR", "watch")
        for number in range(144, 151)
    },
    151: _xid("the GPU's keys could not be renewed", "RESTART_VM"),
    154: _xid("the driver changed the action that it asks for", "XID_154"),
    155: _xid("NVLink error that a reset of the GPU clears", "RESET_GPU"),
    156: _xid("a faulty part of the GPU was retired", "RESET_GPU"),
    157: _xid("a faulty part of the GPU could not be retired", "IGNORE"),
    158: _xid("fatal timeout of the GPU", "RESET_GPU"),
    159: _xid("error of the link between chips (CHI)", "CHECK_UVM", "reset"),
    160: _xid("a memory channel was retired", "IGNORE"),
    161: _xid("a memory channel could not be retired", "IGNORE"),
    162: _xid("notice of the power smoothing circuit", ""),
    163: _xid("notice of the power smoothing circuit", ""),
    164: _xid("the power smoothing circuit is near the end of its life", ""),
    165: _xid("the power smoothing circuit is at the end of its life", ""),
    167: _xid("fatal timeout on the PCIe bus", ""),
    168: _xid("the GPU did not boot with its memory protected", "", "reboot"),
    169: _xid("the GPU's security processor halted", ""),
    171: _xid("details of a double-bit ECC error in DRAM (Xid 48)", ""),
    172: _xid("details of a double-bit ECC error in SRAM (Xid 48)", ""),
}

UNKNOWN = _xid("an error that this table does not have", "RESTART_APP")
SWITCH = _xid("error of an NVSwitch", "", "reset")

# The lines of NVIDIA's driver: https://docs.nvidia.com/deploy/xid-errors/ (2026-11-23).
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)(?:, *(.*))?")
_SWITCH = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")


class GpuError(NamedTuple):
    """An error of a GPU or NVSwitch: PCI address, number, and what the table says of it."""

    address: str
    label: str
    xid: Xid


def gpu_errors(lines: Iterable[str]) -> list[GpuError]:
    """Return the distinct errors of GPUs and NVSwitches, the gravest first."""
    errors: dict[tuple[str, str], GpuError] = {}
    for line in lines:
        match, switch = _XID.search(line), _SWITCH.search(line)
        if match:
            label, xid = f"Xid {match[2]}", XIDS.get(int(match[2]), UNKNOWN)
            error = GpuError(match[1], label, xid.with_text(match[3] or ""))
        elif switch:
            error = GpuError(switch[1], f"SXid {switch[2]}", SWITCH)
        else:
            continue
        errors.setdefault((error.address, error.label), error)
    return sorted(errors.values(), key=lambda error: error.xid.gravity)
