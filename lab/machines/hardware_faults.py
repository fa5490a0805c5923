"""Broken hardware of machines: `gpuctl lab fault set hardware demo-node1 gpus=7 xid=79`.

The stand-ins of the image (`lab/images/stand_ins`) read what a machine shows instead of its type's
values. The kernel's log and the clock are the host's, so two programs print others in their place.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from lab.fault_table import HARDWARE, read
from lab.machines.root_files import remove_file, write_file
from lab.places import Places

VALUES: Mapping[str, tuple[str, str]] = {
    "gpus": ("[0-9]|none", "GPUs that the driver shows; none: the driver does not answer"),
    "efa": ("[0-9]{1,2}", "EFA devices that libfabric finds"),
    "ecc": ("[1-9][0-9]{0,3}", "uncorrectable ECC errors of a GPU"),
    "remap": ("pending|failure", "state of a GPU's row remapping"),
    "nvlink": ("[1-9][0-9]?", "NVLinks of a GPU that are down"),
    "slowdown": ("thermal", "a GPU is slowed down by its temperature"),
    "xid": ("[1-9][0-9]{0,2}", "an Xid error in the kernel's log"),
    "driver": (r"[0-9.]{3,15}", "version of the driver"),
    "library": (r"[0-9.]{3,15}", "version of the driver's libraries, with an older driver"),
    "gpudirect": ("no", "libfabric finds no device that reaches the GPUs' memory"),
    "dcgm": ("[a-z_]{3,20}", "test of DCGM's diagnostic that fails"),
    "mig": ("on", "MIG mode: nvidia-smi gives no load of the GPUs"),
    "smi": ("hangs", "nvidia-smi does not end, as in a driver that hangs"),
    "clock": ("-?[1-9][0-9]{0,5}", "seconds that the clock is ahead"),
}
"""What can be broken: the form of its value, and its meaning."""

FORM = "|".join(f"{name}=({form})" for name, (form, _) in VALUES.items())

LAUNCHED = "launched:"
"""Before a name: machines of this name that are launched while the fault is set, and keep it."""

_SHOWN = "etc/gpuctl-lab/faults.json"
_XID = "[ 4711.081561] NVRM: Xid (PCI:0000:64:00): {xid}, {words}"
_PROCESS = "pid='<unknown>', name=<unknown>"
_WORDS = {
    "48": f"{_PROCESS}, DBE (double bit error)",
    "64": f"{_PROCESS}, Row Remapper: Error recording row remapping",
    "79": f"{_PROCESS}, GPU has fallen off the bus.",
    "94": f"{_PROCESS}, Contained: SM (0x1). RST: No, D-RST: No",
    "95": f"{_PROCESS}, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    "154": "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
}
"""Texts as in https://docs.nvidia.com/deploy/xid-errors (48, 64 and 79 from memory). 94 and 95: a
comment in NVIDIA/open-gpu-kernel-modules; 154, with the action before and after: NVIDIA's
analyzing-xid-catalog.html (both 2026-11-26)."""

_DATE = """\
#!/bin/sh
exec /usr/bin/date -d '{seconds:+d} seconds' "$@"
"""
_DMESG = """\
#!/bin/sh
echo "{line}"
"""
SMI = {
    "mig": """\
#!/bin/sh
case "$*" in
  *--query-gpu=utilization.gpu\\ *) /usr/bin/nvidia-smi "$@" | sed 's/.*/[N\\/A]/' ;;
  *) exec /usr/bin/nvidia-smi "$@" ;;
esac
""",
    "smi": """\
#!/bin/sh
trap '' TERM
exec sleep infinity
""",
}
"""Programs in place of nvidia-smi. In MIG mode it shows `N/A` for the load (an output in
https://github.com/utkuozdemir/nvidia_gpu_exporter/issues/203, 2026-11-26)."""


def apply(places: Places, former: tuple[str, ...] = ()) -> None:
    """Let running machines show what the table of faults says.

    `former` are the arguments of a fault that was set before: its machines are whole again.
    """
    machines, shown = _read(read(places.faults).get(HARDWARE, ()))
    for instance_id in {*_read(former)[0], *machines}:
        root = places.machines / instance_id / "root"
        if root.is_dir():
            _write(root, shown if instance_id in machines else {})


def show_at_launch(places: Places, root: Path, name: str) -> None:
    """Let a machine of this name, which is about to boot, show what the table of faults says."""
    named, shown = _read(read(places.faults).get(HARDWARE, ()))
    if f"{LAUNCHED}{name}" in named:
        _write(root, shown)


def _read(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the machines, by id or `launched:NAME`, and what they show."""
    pairs = [word.partition("=") for word in arguments if "=" in word]
    ids = tuple(word for word in arguments if "=" not in word)
    return ids, {name: value for name, _, value in pairs}


def _write(root: Path, shown: Mapping[str, str]) -> None:
    values: dict[str, object] = {
        name: None if value == "none" else int(value) if re.fullmatch("-?[0-9]+", value) else value
        for name, value in shown.items()
    }
    _put(root, _SHOWN, json.dumps(values) if values else "", 0o644)
    clock, xid = shown.get("clock"), shown.get("xid")
    _put(root, "usr/local/bin/date", _DATE.format(seconds=int(clock)) if clock else "", 0o755)
    smi = "".join(text for name, text in SMI.items() if name in shown)
    _put(root, "usr/local/bin/nvidia-smi", smi, 0o755)
    _put(root, "usr/local/bin/dmesg", _DMESG.format(line=kernel_line(xid)) if xid else "", 0o755)


def kernel_line(xid: str) -> str:
    """Return the line of the kernel's log for an Xid error, as NVIDIA's driver writes it."""
    return _XID.format(xid=xid, words=_WORDS.get(xid, f"{_PROCESS}, an error"))


def _put(root: Path, path: str, text: str, mode: int) -> None:
    """Write a file of the machine; remove it if the text is empty."""
    if text:
        write_file(root, path, text.encode(), mode)
    else:
        remove_file(root, path)
